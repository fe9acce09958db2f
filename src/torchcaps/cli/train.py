"""`torchcaps train`: train a network from a recipe and write a report."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from torchcaps.cli._args import add_recipe, one_name, program
from torchcaps.cli._recipe import SKIP_BAD, choices_document, open_recipe, show_choices
from torchcaps.cli._repeat import add_repeats, is_repeated, run_repeated
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError, ProcessError

if TYPE_CHECKING:
    from pathlib import Path

    from torchcaps.cli._output import Output
    from torchcaps.evaluation import Evaluation
    from torchcaps.train import FolderRecipe, Recipe, Run


def _configure(parser: ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="continue a stopped run in its folder; add trainer.epochs=N to extend it to N epochs in total, or "
        "trainer.devices=N for another number of processes",
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="with --resume: start again from the first step, if all checkpoints are damaged; they are kept aside",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the run (default: a new folder in runs/)")
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave out image files that cannot be read, instead of stopping"
    )
    parser.add_argument(
        "--find-lr", action="store_true", help="find a learning rate by a short trial first, and train with it"
    )
    add_repeats(parser)
    parser.add_argument("--no-report", action="store_true", help="train and evaluate only, without figures and report")


def _run(args: Namespace, out: Output) -> int:
    name, changes = one_name(args.words, "recipe")
    others = name is not None or args.out is not None
    changed: dict[str, Any] = {} if args.resume is None else _changes(changes, others)
    if args.restart and args.resume is None:
        raise ConfigError("--restart: expected it together with --resume RUN")
    if is_repeated(args):
        return run_repeated(args, open_recipe(name, [*changes, *([SKIP_BAD] if args.skip_bad else [])])[0], out)
    from torchcaps.train import fit, is_first_process, resume

    first = is_first_process()
    progress, chosen = out.shows_progress and first, None
    try:
        with out.stdout_kept():
            if args.resume is not None:
                run = resume(args.resume, **changed, restart=args.restart, progress=progress)
            else:
                recipe, chosen = open_recipe(name, [*changes, *([SKIP_BAD] if args.skip_bad else [])])
                if chosen is not None and progress:
                    show_choices(chosen, out)
                if args.find_lr and first:
                    recipe = _with_found_lr(recipe, out)
                run = fit(recipe, args.out, progress=progress)
    except ProcessError as error:
        # Without a cause it is what the first process could not do, and has reported.
        if first or error.__cause__ is not None:
            raise
        return 2
    # Under torchrun and srun, the first process evaluates and reports.
    if not first:
        return 0
    if run.status != "finished":
        out.document({"run": run.path, "status": run.status})
        print(f"stopped; resume with: {program()} train --resume {run.path}", file=sys.stderr)
        # As a shell reports a process that a signal ended: 130 for SIGINT, 143 for SIGTERM.
        return 128 + signal.Signals[run.record["signal"]]
    _finish(run, out, chosen, report=not args.no_report)
    return 0


def _with_found_lr(recipe: Recipe, out: Output) -> Recipe:
    from dataclasses import replace

    from torchcaps.train import find_lr

    found = find_lr(recipe)
    if out.shows_progress:
        out.say(f"learning rate: {found.lr:.2g} (found by a trial of {len(found.losses)} steps)")
    return replace(recipe, optim=replace(recipe.optim, lr=found.lr))


def _changes(changes: list[str], others: bool) -> dict[str, Any]:
    """Return what a resumed run changes: the total number of epochs, the number of processes."""
    pairs = [change.partition("=")[::2] for change in changes]
    known = {key: name for name in ("epochs", "devices") for key in (name, f"trainer.{name}")}
    if others or any(key not in known or not number.isdecimal() for key, number in pairs):
        raise ConfigError(
            "--resume: expected a run and at most trainer.epochs=N and trainer.devices=N, got more arguments (the run "
            "folder holds the recipe)"
        )
    return {known[key]: int(number) for key, number in pairs}


def _finish(run: Run, out: Output, chosen: FolderRecipe | None, *, report: bool) -> None:
    from torchcaps.evaluation import findings

    model, evaluation = run.context.model, run.context.evaluate()
    page = _write_report(run, out) if report else None
    error = f" (error {evaluation.error:.2%})" if model.is_classifier else ""
    found = findings(evaluation.metrics, run.metrics()) if model.is_classifier else []
    numbers = {key: value for key, value in evaluation.summary().items() if key in ("accuracy", "error", "loss")}
    out.document(
        {
            "run": run.path,
            "status": run.status,
            "report": page,
            **numbers,
            "findings": found,
            "count": evaluation.count,
            "recipe": run.recipe.name,
            "record": run.record,
            **choices_document(chosen),
        }
    )
    out.say(f"{evaluation.headline} on {evaluation.count:,} held-out images{error}", style="bold")
    for sentence in found:
        out.say(sentence)
    if page is None:
        out.facts({"run": run.path})
        return
    out.facts({"report": page, "run": run.path})
    _suggest(run, evaluation, out)


def _write_report(run: Run, out: Output) -> Path:
    from torchcaps.report import write_report

    with out.progress("diagnosing") as progress:
        return write_report(run, progress=progress)


def _suggest(run: Run, evaluation: Evaluation, out: Output) -> None:
    from torchcaps.report import FIGURES, FigureContext

    out.say("\ntry next:")
    tries: dict[str, str] = {}
    if run.context.model.is_classifier and len(run.context.model.image_shape) == 3:
        tries[f"{program()} predict {run.path} IMAGE"] = "classify an image of your own"
    context = FigureContext(run, evaluation=evaluation)
    if FIGURES["perturbations"].requires(context) is None:
        tries[f"{program()} show {run.path} --figure perturbations"] = "what each dimension of a capsule encodes"
    if FIGURES["coupling"].requires(context) is None:
        again = f"{program()} train {run.path}/recipe.toml model.options.routing.iters=1"
        tries[again] = "does routing help? the same network with one iteration"
    tries[f"{program()} recipes"] = "other recipes"
    width = max(map(len, tries))
    for command, purpose in tries.items():
        out.say(f"  {command:<{width}}  # {purpose}")


VERB = Verb(
    name="train",
    summary="train a network from a recipe, evaluate it and write a report",
    description="Trains the network of a recipe, evaluates it on the held-out test set (not used for model "
    "selection), and writes everything into one run folder: recipe, metrics, checkpoints, weights, figures and a "
    "report to open in a browser. Arguments such as trainer.epochs=5 override values of the recipe; `torchcaps recipes "
    "NAME` lists them all, and the short form epochs=5 works where it is unambiguous. With a folder of images in place "
    "of a recipe, the recipe is chosen by looking at them: size, colour, backbone, batch, epochs, augmentation, class "
    "weights. It is printed with reasons and stored in the run. A run that was stopped continues with --resume, and "
    "ends with the same weights as a run that was not. --seeds and --folds train several runs, each in its own folder, "
    "and report mean and deviation of all metrics; the same command resumes, and shares the runs between the processes "
    "and hosts that it is started on.",
    examples=(
        ("torchcaps train", "a small capsule network on the bundled digits"),
        ("torchcaps train digits trainer.epochs=5 --no-report", "the same with other values and without a report"),
        ("torchcaps train my/images", "your own images, one sub-folder per class: looks at them and chooses a recipe"),
        ("torchcaps train --resume runs/NAME", "continue a stopped run"),
        ("torchcaps train mnist trainer.devices=2 trainer.logger=tensorboard", "two processes, with a logger"),
        ("torchcaps train my/images --folds 5 --seeds 3", "mean and deviation over five folds and three seeds"),
    ),
    configure=_configure,
    run=_run,
    takes_overrides=True,
)
