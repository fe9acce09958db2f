"""`torchcaps sweep`: search the values of a recipe."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._args import one_name, program
from torchcaps.cli._multi_run import ConsoleReporter, exit_code, report_stopped
from torchcaps.cli._recipe import open_recipe
from torchcaps.cli._submit import add_submit, submit
from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.experiments import Sweep

# Trials in the printed table; sweep.json has all.
SHOWN = 15


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RECIPE key=value",
        help="name or TOML file of a recipe or a folder of images (default: digits), changes to it, and what varies: "
        "key=a,b,c for one of several values, 'key=log(1e-4,1e-2)' and 'key=uniform(0,0.5)' for numbers of a range, "
        "'key=int(1,5)' and 'key=logint(16,256)' for whole numbers",
    )
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="number of trials over all processes (default: 20, or all combinations if there is no range); a larger "
        "number extends a sweep",
    )
    parser.add_argument("--no-pruning", action="store_true", help="train every trial to its end")
    add_submit(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder (default: runs/sweep-RECIPE)")


def _run(args: Namespace, out: Output) -> int:
    name, overrides = one_name(args.words, "recipe")
    from torchcaps.experiments import parse_space, sweep

    space, plain = parse_space(overrides)
    recipe, _ = open_recipe(name, plain)
    folder = args.out or Path("runs") / f"sweep-{recipe.name}"
    words = ["sweep", *args.words, *([] if args.trials is None else ["--trials", str(args.trials)])]
    words += ["--no-pruning"] if args.no_pruning else []
    if (code := submit(args, words, folder, out)) is not None:
        return code
    try:
        with out.stdout_kept():
            result = sweep(
                recipe,
                folder,
                space,
                trials=args.trials,
                prune=not args.no_pruning,
                reporter=ConsoleReporter(out),
            )
    except KeyboardInterrupt:
        return report_stopped(words, folder, args.out, out)
    return report_stopped(words, folder, args.out, out) if result.status == "stopped" else _finish(result, folder, out)


def _finish(result: Sweep, folder: Path, out: Output) -> int:
    from torchcaps import viz
    from torchcaps._files import write_figure
    from torchcaps.experiments import sweep_lines
    from torchcaps.experiments.sweep import BEST, RESULT
    from torchcaps.experiments.sweep_result import format_value

    document, figure, best = asdict(result), folder / "sweep.png", folder / BEST
    command = f"{program()} train {shlex.quote(str(best))}"
    if result.best is None:
        out.document({"folder": folder, "figure": None, "best_recipe": None, "command": None, **document})
    else:
        write_figure(figure, viz.sweep(document))
        out.document({"folder": folder, "figure": figure, "best_recipe": best, "command": command, **document})
    counts = ", ".join(
        f"{sum(trial.status == status for trial in result.trials)} {status}"
        for status in dict.fromkeys(trial.status for trial in result.trials)
    )
    out.say(f"{result.recipe['model']['name']} on {result.recipe['data']['name']}; trials: {counts}", style="bold")
    header, *rows = sweep_lines(result, SHOWN)
    out.table(header, rows)
    if len(result.trials) > SHOWN:
        out.say(f"{len(result.trials) - SHOWN} more in {folder / RESULT}")
    if result.importance:
        out.say("what mattered: share of the variance of the results that each value explains (fANOVA)")
        out.table(("value", "share"), [(key, f"{share:.0%}") for key, share in result.importance.items()])
    if result.best is not None:
        chosen = next(trial for trial in result.trials if trial.number == result.best)
        shown = " ".join(f"{key}={value}" for key, value in chosen.values.items())
        out.say(f"best: {shown}", style="bold")
        assert chosen.value is not None
        out.say(f"{result.metric.replace('_', ' ')} {format_value(result.metric, chosen.value)}{_tested(result)}")
        out.facts({"recipe": best, "run": folder / chosen.folder, "table": folder / RESULT, "figure": figure})
        out.say(f"\ntrain it again: {command}")
    return exit_code(trial.status for trial in result.trials)


def _tested(result: Sweep) -> str:
    accuracy = result.best_test.get("test_accuracy")
    return "" if accuracy is None else f", test accuracy {accuracy:.2%} (the test split selected nothing)"


VERB = Verb(
    name="sweep",
    summary="search the values of a recipe: learning rate, iterations, anything",
    description="Trains a recipe with different values and reports the best ones, by the validation split. The first "
    "trials are random; the values of the others are those that Optuna expects to be good. Without a range, every "
    "combination is tried once. A trial that is worse than the median of the others after the same epoch is ended "
    "early. Each trial has its own run folder. The same command resumes a stopped sweep; started several times, on one "
    "host or on several that see the folder, it shares the trials, and those of a killed process are taken over. "
    "Writes sweep.json, sweep.png (what mattered) and best.toml, the recipe of the best trial.",
    examples=(
        ("torchcaps sweep digits 'optim.lr=log(1e-4,1e-2)' model.options.routing.iters=1,2,3 --trials 30", "search"),
        ("torchcaps sweep digits model.options.routing.name=dynamic,em optim.lr=0.001,0.003", "all four combinations"),
        ("torchcaps sweep my/images 'optim.lr=log(1e-4,1e-2)' trainer.epochs=10", "your own images, shorter trials"),
        ("torchcaps sweep digits optim.lr=0.001,0.003 --submit slurm --workers 8", "as an array of jobs on SLURM"),
    ),
    configure=_configure,
    run=_run,
)
