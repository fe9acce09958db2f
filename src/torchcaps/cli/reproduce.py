"""`torchcaps reproduce`: published tables and figures."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps._registry import nearest
from torchcaps.cli._args import split_words
from torchcaps.cli._multi_run import ConsoleReporter, exit_code, report_stopped
from torchcaps.cli._submit import add_submit, submit
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.experiments import Reproduction, ReproductionResult

FOLDER, TRIALS = Path("runs") / "reproduce", Path("runs") / "reproduce-trial"


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME key=value",
        help="name or TOML file of a reproduction (default: list all), and changes to its recipes",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="'LABEL'",
        help="train only networks whose label matches this pattern; may be repeated",
    )
    parser.add_argument("--report", action="store_true", help="train nothing; measure and report the finished runs")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"folder of the runs, shared by reproductions (default: {FOLDER}, or {TRIALS} for changed experiments)",
    )
    add_submit(parser)
    parser.add_argument("--remeasure", action="store_true", help="measure finished runs again")


def _run(args: Namespace, out: Output) -> int:
    names, changes = split_words(args.words)
    if len(names) > 1 or (changes and not names):
        got = ", ".join(names) if names else f"only '{changes[0]}'"
        raise ConfigError(f"reproduction: expected one name or file, got {got}")
    if not names:
        return _list(args, args.out or FOLDER, out)
    from torchcaps.experiments import changes_experiment, load_reproduction, reproduce

    folder = args.out or (TRIALS if any(map(changes_experiment, changes)) else FOLDER)
    entry = load_reproduction(names[0])
    train = _labels(entry, args)
    words = ["reproduce", *args.words, *(word for label in args.only or () for word in ("--only", label))]
    words += ["--report"] if args.report else []
    if (code := submit(args, words, folder, out)) is not None:
        return code
    try:
        with out.stdout_kept():
            result = reproduce(
                entry, folder, train=train, changes=changes, remeasure=args.remeasure, reporter=ConsoleReporter(out)
            )
    except KeyboardInterrupt:
        return report_stopped(words, folder, args.out, out)
    return report_stopped(words, folder, args.out, out) if result.status == "stopped" else _finish(result, folder, out)


def _labels(entry: Reproduction, args: Namespace) -> list[str] | None:
    """Return the labels of the networks to train, or None for all."""
    labels = [network.label for network in entry.networks]
    for pattern in args.only or ():
        if not any(fnmatchcase(label, pattern) for label in labels):
            raise UnknownNameError(f"unknown network '{pattern}' of {entry.name}{nearest(pattern, labels)}")
    if args.report:
        return []
    if args.only is None:
        return None
    return [label for label in labels if any(fnmatchcase(label, pattern) for pattern in args.only)]


def _finish(result: ReproductionResult, folder: Path, out: Output) -> int:
    from torchcaps.experiments import reproduction_lines, result_file, write_reproduction_report

    report = write_reproduction_report(result, folder)
    out.document({"folder": folder, "report": report, **asdict(result)})
    header, *rows = reproduction_lines(result.rows, result.columns)
    out.say(result.title, style="bold")
    out.say(f"{result.source}. {result.note}".strip())
    out.table(header, rows)
    for name, reason in result.failed_figures.items():
        out.say(f"figure {name} is not available: {reason}")
    figures = {f"figure {name}": folder / figure.file for name, figure in result.figures.items()}
    out.facts({"table": result_file(result.name, folder), "report": report, **figures, "runs": folder})
    return exit_code(run.status for row in result.rows for run in row.runs)


def _list(args: Namespace, folder: Path, out: Output) -> int:
    if args.only or args.report or args.remeasure:
        raise ConfigError("reproduction: expected a name with --only, --report and --remeasure, got none")
    from torchcaps.experiments import (
        ReproductionResult,
        format_statistic,
        list_reproductions,
        load_reproduction,
        read_json,
        result_file,
    )

    documents, rows = [], []
    for name in list_reproductions():
        entry, file = load_reproduction(name), result_file(name, folder)
        recorded = read_json(ReproductionResult, file).rows if file.exists() else []
        ours = {row.label: row.columns for row in recorded}
        document = asdict(entry)
        for number, network in enumerate(entry.networks):
            columns = {key: value for key, value in ours.get(network.label, {}).items() if value is not None}
            document["networks"][number]["ours"] = {key: asdict(value) for key, value in columns.items()}
            paper = ", ".join(f"{key} {value:g}" for key, value in network.paper.items())
            measured = ", ".join(f"{key} {format_statistic(value, 2)}" for key, value in columns.items())
            rows.append([*([name, entry.title] if number == 0 else ["", ""]), network.label, paper, measured])
        documents.append({**document, "result": file if file.exists() else None})
    out.document(documents)
    out.table(("reproduction", "title", "network", "paper, %", "ours, %"), rows)
    return 0


VERB = Verb(
    name="reproduce",
    summary="reproduce a published table or figure",
    description="Without a name, lists the reproductions with the papers' numbers and the measured ones. With a name, "
    "trains the networks of the reproduction, measures them, draws its figures, and writes a table of paper and own "
    "results. Every run has its own folder, and reproductions share runs of the same recipe. The same command resumes "
    "a stopped reproduction. A network that fails is reported with the reason. trainer.precision=bf16-mixed does not "
    "change the experiment and is faster on processors that support it; other changes make a trial.",
    examples=(
        ("torchcaps reproduce", "list the reproductions and the papers' numbers"),
        ("torchcaps reproduce mnist_table1", "train missing networks, measure, draw and report"),
        ("torchcaps reproduce mnist_table1 trainer.epochs=1", "a trial with less training, in its own folder"),
        ("torchcaps reproduce mnist_table1 --report", "report the finished runs, without training"),
        ("torchcaps reproduce mnist_table1 --submit slurm --print", "the script of an array of jobs"),
    ),
    configure=_configure,
    run=_run,
    takes_overrides=True,
)
