"""`torchcaps train`: from a recipe to a trained network and its report."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from torchcaps.cli._verb import STOPPED, Verb
from torchcaps.cli._words import program
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.train import Run


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RECIPE key=value",
        help="the name or TOML file of a recipe (`torchcaps recipes` lists them; default: digits), and changes to it",
    )
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with a run that was stopped, in its own folder; with trainer.epochs=N to so many epochs in all",
    )
    parser.add_argument("--out", metavar="DIR", help="the folder of the run (default: a new one in runs/)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _run(args: Namespace, out: Output) -> int:
    names = [word for word in args.words if "=" not in word]
    changes = [word for word in args.words if "=" in word]
    epochs = None if args.resume is None else _epochs(changes, others=bool(names) or args.out is not None)
    if len(names) > 1:
        raise ConfigError(f"recipe: expected one name or file, got {', '.join(names)}")
    from torchcaps.train import DEFAULT_RECIPE, load_recipe, resume, start

    progress = out.shows_progress
    with out.stdout_kept():
        if args.resume is not None:
            run = resume(args.resume, epochs=epochs, progress=progress)
        else:
            run = start(load_recipe(names[0] if names else DEFAULT_RECIPE, changes), args.out, progress=progress)
    if run.status != "finished":
        out.document({"run": run.path, "status": run.status})
        print(f"stopped; go on with: {program()} train --resume {run.path}", file=sys.stderr)
        return STOPPED
    _finish(run, out)
    return 0


def _epochs(changes: list[str], others: bool) -> int | None:
    """How many epochs a run is to have when it goes on; None for as many as it was to have."""
    match [change.partition("=") for change in changes]:
        case [] if not others:
            return None
        case [("trainer.epochs", _, number)] if not others and number.isdecimal():
            return int(number)
    raise ConfigError(
        "--resume: expected nothing but the run, whose folder holds its recipe, and perhaps trainer.epochs=N, "
        "got more words"
    )


def _finish(run: Run, out: Output) -> None:
    from torchcaps.eval import evaluate, report
    from torchcaps.eval.pictures import lacking

    model = run.load_model()
    with out.progress("testing") as progress:
        evaluation = evaluate(model, run.load_data("test"), progress=progress)
    with out.progress("diagnosing") as progress:
        page = report(run, evaluation, progress=progress)
    error = f" (error {evaluation.error:.2%})" if model.classifies else ""
    numbers = {key: value for key, value in evaluation.summary().items() if key in ("accuracy", "error", "loss")}
    out.document(
        {
            "run": run.path,
            "status": run.status,
            "report": page,
            **numbers,
            "count": evaluation.count,
            "recipe": run.recipe.name,
            "record": run.record,
        }
    )
    out.say(f"{evaluation.words} on {evaluation.count:,} held-out images{error}", style="bold")
    out.facts({"report": page, "run": run.path})
    out.say("\ntry next:")
    tries: dict[str, str] = {}
    if model.classifies:
        tries[f"{program()} predict {run.path} IMAGE"] = "ask it about an image of your own"
    if lacking("perturbations", model) is None:
        tries[f"{program()} show {run.path} --what perturbations"] = "what each dimension of a capsule stands for"
    if lacking("coupling", model) is None:
        again = f"{program()} train {run.path}/recipe.toml model.options.routing.iters=1"
        tries[again] = "does routing help? the same without it"
    tries[f"{program()} recipes"] = "what else can be trained"
    width = max(map(len, tries))
    for command, purpose in tries.items():
        out.say(f"  {command:<{width}}  # {purpose}")


VERB = Verb(
    name="train",
    summary="train a network from a recipe, test it and write a report",
    description="Trains as a recipe says, tests the result on held-out images and writes everything into one run "
    "folder: recipe, metrics, checkpoints, weights, pictures and a report to open in a browser. Words "
    "like trainer.epochs=5 change the recipe; `torchcaps recipes NAME` shows what can be changed. "
    "Stopped by Ctrl-C, a run goes on with --resume and ends as if it had never stopped.",
    examples=(
        ("torchcaps train", "a small capsule network on the digits that come along"),
        ("torchcaps train digits trainer.epochs=5 optim.lr=0.001", "the same, changed"),
        ("torchcaps train folder data.options.path=my/pictures", "your own images, one sub-folder per class"),
        ("torchcaps train --resume runs/NAME", "go on with a run that was stopped"),
    ),
    configure=_configure,
    run=_run,
)
