"""`torchcaps train RECIPE --seeds 3 --folds 5`: one recipe several times, with mean and deviation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._multi_run import ConsoleReporter, exit_code, report_stopped
from torchcaps.cli._submit import add_submit, submit
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.experiments import Repetition
    from torchcaps.train import Recipe


def add_repeats(parser: ArgumentParser) -> None:
    """Add the options --seeds, --folds, --groups and --submit."""
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="train N runs with consecutive seeds; report mean and deviation"
    )
    parser.add_argument(
        "--folds",
        type=int,
        metavar="N",
        help="cross-validation: train N runs, each tested on another of N folds that are stratified by class",
    )
    parser.add_argument(
        "--groups",
        metavar="WHAT",
        help="with --folds: keep images of one group in one fold. `folder`: the sub-folder of the class (as in "
        "class/patient/image.png); FILE.csv:COLUMN: a table with a row per file, or per sample of `arrays`; or a value "
        "of the data set, such as instance of smallnorb",
    )
    add_submit(parser)


def is_repeated(args: Namespace) -> bool:
    """Return whether several runs are to be trained; options that only one run can have are an error then."""
    repeated = args.seeds is not None or args.folds is not None
    if args.submit and not repeated:
        raise ConfigError(f"--submit: expected with --seeds or --folds, got '{args.submit}' for one run")
    if args.groups is not None and args.folds is None:
        raise ConfigError(f"--groups: expected with --folds N, got '{args.groups}' without")
    for name in ("resume", "find_lr", "restart"):
        if repeated and getattr(args, name):
            hint = "the same command resumes" if name == "resume" else "train one run with it"
            option = name.replace("_", "-")
            raise ConfigError(f"--{option}: expected one run, got --seeds or --folds ({hint})")
    return repeated


def run_repeated(args: Namespace, recipe: Recipe, out: Output) -> int:
    """Train the runs and print the tables.

    Args:
        args: The arguments of `torchcaps train`.
        recipe: The recipe.
        out: The output.

    Returns:
        The exit code.
    """
    from torchcaps.experiments import repeat

    words = ["train", *args.words, *(["--skip-bad"] if args.skip_bad else [])]
    kinds = []
    for name in ("folds", "seeds", "groups"):
        if (value := getattr(args, name)) is not None:
            words += [f"--{name}", str(value)]
            kinds += [f"{name}{value}"] if name != "groups" else ["grouped"]
    chosen = None if args.out is None else Path(args.out)
    folder = chosen or Path("runs") / "-".join([recipe.name, *kinds])
    if (code := submit(args, words, folder, out)) is not None:
        return code
    try:
        with out.stdout_kept():
            result = repeat(
                recipe,
                folder,
                seeds=1 if args.seeds is None else args.seeds,
                folds=args.folds,
                groups=args.groups,
                reporter=ConsoleReporter(out),
            )
    except KeyboardInterrupt:
        return report_stopped(words, folder, chosen, out)
    if result.status == "stopped":
        return report_stopped(words, folder, chosen, out)
    return _finish(result, folder, out, report=not args.no_report)


def _finish(result: Repetition, folder: Path, out: Output, *, report: bool) -> int:
    from torchcaps.experiments import repeat_lines, run_lines, write_repeat_report
    from torchcaps.experiments.repeat import RESULT

    page = write_repeat_report(result, folder) if report else None
    out.document({"folder": folder, "report": page, **asdict(result)})
    recipe = result.recipe
    out.say(f"{recipe['model']['name']} on {recipe['data']['name']}; runs: {len(result.runs)}", style="bold")
    for header, *rows in (run_lines(result), repeat_lines(result)):
        # Without a finished run there are no metrics.
        if rows:
            out.table(header, rows)
    out.facts({"table": folder / RESULT, **({} if page is None else {"report": page}), "runs": folder})
    return exit_code(run.status for run in result.runs)
