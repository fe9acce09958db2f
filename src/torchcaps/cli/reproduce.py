"""`torchcaps reproduce`: published tables and figures."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._args import program, split_words
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
    if out.shows_progress and not args.report:
        _announce(entry, train, changes, folder)
    try:
        with out.stdout_kept():
            result = reproduce(
                entry, folder, train=train, changes=changes, remeasure=args.remeasure, reporter=ConsoleReporter(out)
            )
    except KeyboardInterrupt:
        return report_stopped(words, folder, args.out, out)
    if result.status == "stopped":
        return report_stopped(words, folder, args.out, out)
    return _finish(result, folder, out, report_only=args.report)


def _labels(entry: Reproduction, args: Namespace) -> list[str] | None:
    """Return the labels of the networks to train, or None for all."""
    labels = [network.label for network in entry.networks]
    for pattern in args.only or ():
        if not any(fnmatchcase(label, pattern) for label in labels):
            known = ", ".join(f"'{label}'" for label in labels)
            raise UnknownNameError(f"unknown network '{pattern}' of {entry.name}; known: {known}")
    if args.report:
        return []
    if args.only is None:
        return None
    return [label for label in labels if any(fnmatchcase(label, pattern) for pattern in args.only)]


def _announce(entry: Reproduction, train: list[str] | None, changes: list[str], folder: Path) -> None:
    """Print to stderr what will be trained, how long that took where it was recorded, and which data it needs."""
    from torchcaps.cli._data.list import local_files_of
    from torchcaps.data import DATASETS
    from torchcaps.experiments import changes_experiment, load_recorded, plan_runs, recorded_minutes

    runs = [run for run in plan_runs(entry, changes) if train is None or run.label in train]
    left = [run for run in runs if not (folder / run.folder / "weights.safetensors").exists()]
    trial = [change for change in changes if changes_experiment(change)]
    lines = [f"TRIAL with {', '.join(trial)}: its numbers are not those of the experiment"] if trial else []
    lines.append(f"networks: {len({run.label for run in runs})}, runs: {len(runs)}, finished: {len(runs) - len(left)}")
    minutes = recorded_minutes(entry.name, (run.label for run in left))
    if minutes is not None and left:
        machine = next(iter(load_recorded()[entry.name].values())).machine
        unchanged = "the unchanged recipes" if trial else "the rest"
        lines.append(f"recorded time of {unchanged}: {minutes:.0f} minutes ({machine})")
    elif left:
        lines.append("no recorded time: not all of its networks have been run yet")
    for name in sorted({str(run.recipe.data.options.get("source", run.recipe.data.name)) for run in left}):
        state = "not needed" if name not in DATASETS else local_files_of(name)
        hint = "" if state in ("all", "not needed") else f"; `{program()} data download {name}` downloads it"
        lines.append(f"data {name}: files on this machine: {state}{hint}")
    print("\n".join(lines), file=sys.stderr, flush=True)


def _finish(result: ReproductionResult, folder: Path, out: Output, *, report_only: bool) -> int:
    from torchcaps.experiments import load_recorded, reproduction_lines, result_file, write_reproduction_report

    report = write_reproduction_report(result, folder)
    out.document({"folder": folder, "report": report, "trial": bool(result.changes), **asdict(result)})
    recorded = load_recorded().get(result.name)
    header, *rows = reproduction_lines(
        result.rows,
        result.columns,
        same_experiment=result.same_experiment,
        recorded=recorded,
        trial=bool(result.changes),
    )
    out.say(result.heading, style="bold")
    out.say(result.lead)
    out.table(header, rows)
    out.say(_legend(result.same_experiment))
    shown = recorded is not None and report_only
    if recorded is not None and not any(row.finished for row in result.rows):
        out.say("none of these networks has been trained here; `recorded` are the results in the package")
    for name, reason in result.failed_figures.items():
        out.say(f"figure {name} is not available: {reason}")
    figures = {f"figure {name}": folder / figure.file for name, figure in result.figures.items()}
    out.facts({"table": result_file(result.name, folder), "report": report, **figures, "runs": folder})
    return 0 if shown else exit_code(run.status for row in result.rows for run in row.runs)


def _legend(same_experiment: bool) -> str:
    legend = "↓ lower is better, ↑ higher is better"
    return legend if same_experiment else f"{legend}; in parentheses: the paper's network or protocol differs"


def _list(args: Namespace, folder: Path, out: Output) -> int:
    if args.only or args.report or args.remeasure:
        raise ConfigError(
            "reproduction: expected a name with --only, --report and --remeasure (`torchcaps reproduce` lists them)"
        )
    from torchcaps.experiments import (
        ReproductionResult,
        format_statistic,
        list_reproductions,
        load_recorded,
        load_reproduction,
        read_json,
        result_file,
        with_direction,
    )

    documents, rows = [], []
    for name in list_reproductions():
        entry, file = load_reproduction(name), result_file(name, folder)
        recorded = read_json(ReproductionResult, file).rows if file.exists() else []
        ours = {row.label: row.columns for row in recorded}
        document = asdict(entry)
        for number, network in enumerate(entry.networks):
            columns = {key: value for key, value in ours.get(network.label, {}).items() if value is not None}
            known = load_recorded().get(name, {}).get(network.label)
            document["networks"][number]["ours"] = {key: asdict(value) for key, value in columns.items()}
            document["networks"][number]["recorded"] = None if known is None else asdict(known)
            cells = [*([name, entry.title] if number == 0 else ["", ""]), network.label]
            # The first column is the main one; the table of the reproduction has all.
            for column in [*network.paper, *columns, *(known.columns if known else [])][:1] or [""]:
                paper = network.paper.get(column)
                cells.append(with_direction(column))
                cells.append("" if paper is None else f"{paper:g}" if entry.same_experiment else f"({paper:g})")
                cells.append(format_statistic(known.columns.get(column), 2) if known else "")
                cells.append(format_statistic(columns.get(column), 2))
            rows.append([*cells, f"{known.minutes:.0f} x {known.runs}" if known else ""])
        documents.append({**document, "result": file if file.exists() else None})
    out.document(documents)
    out.table(("reproduction", "title", "network", "per cent", "paper", "recorded", "yours", "minutes x runs"), rows)
    out.say(_legend(False))
    return 0


VERB = Verb(
    name="reproduce",
    summary="reproduce a published table or figure",
    description="Without a name, lists the reproductions with the papers' numbers, the recorded ones that are part of "
    "the package, and yours. With a name, states the data and the time that it needs, trains the networks of the "
    "reproduction, measures them, draws its figures, and writes a table of paper and own results. Every run has its "
    "own folder, and reproductions share runs of the same recipe. The same command resumes a stopped reproduction. A "
    "network that fails is reported with the reason. trainer.precision=bf16-mixed does not change the experiment and "
    "is faster on processors that support it; other changes make a trial, which is marked as one.",
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
