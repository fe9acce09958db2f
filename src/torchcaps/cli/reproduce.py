"""`torchcaps reproduce`: the papers' tables and pictures, trained, measured and drawn anew."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps._registry import nearest
from torchcaps.cli._several import exit_code, make_runs
from torchcaps.cli._verb import STOPPED, Verb
from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.reproduce import Reproduction

FOLDER, TRIALS = Path("runs") / "reproduce", Path("runs") / "reproduce-trial"


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME key=value",
        help="a reproduction, by name or TOML file (without one all are listed), and changes to all of its recipes",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="'LABEL'",
        help="train only the networks with this label, which may hold a *; may be given several times",
    )
    parser.add_argument(
        "--report", action="store_true", help="train nothing: measure and report what is finished so far"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"the folder of the runs, which reproductions share (default: {FOLDER}; with changes that make another "
        f"experiment, {TRIALS})",
    )
    parser.add_argument("--again", action="store_true", help="measure finished runs again, as after new data came")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def _run(args: Namespace, out: Output) -> int:
    names = [word for word in args.words if "=" not in word]
    changes = [word for word in args.words if "=" in word]
    if len(names) > 1 or (changes and not names):
        got = ", ".join(names) if names else f"'{changes[0]}' alone"
        raise ConfigError(f"reproduction: expected one name or file, got {got}")
    if not names:
        return _list(args, args.out or FOLDER, out)
    from torchcaps.reproduce import alters, load_reproduction, reproduce

    folder = args.out or (TRIALS if any(map(alters, changes)) else FOLDER)
    entry = load_reproduction(names[0])
    train = _labels(entry, args)

    def make(tell: Callable[[str], None]) -> dict[str, Any]:
        return reproduce(
            entry,
            folder,
            train=train,
            changes=changes,
            again=args.again,
            progress=out.shows_progress,
            bar=out.progress,
            tell=tell,
        )

    words = ["reproduce", *args.words, *(word for label in args.only or () for word in ("--only", label))]
    result = make_runs(make, args, [*words, *(["--report"] if args.report else [])], folder, out)
    return STOPPED if result is None else _finish(result, folder, out)


def _labels(entry: Reproduction, args: Namespace) -> list[str] | None:
    """Which networks to train: none for a report, those that are asked for, or None for all."""
    labels = [network.label for network in entry.networks]
    for pattern in args.only or ():
        if not any(fnmatchcase(label, pattern) for label in labels):
            raise UnknownNameError(f"unknown network '{pattern}' of {entry.name}{nearest(pattern, labels)}")
    if args.report:
        return []
    if args.only is None:
        return None
    return [label for label in labels if any(fnmatchcase(label, pattern) for pattern in args.only)]


def _finish(result: dict[str, Any], folder: Path, out: Output) -> int:
    from torchcaps.reproduce import lines, result_file, write_report

    report = write_report(result, folder)
    out.document({"folder": folder, "report": report, **result})
    header, *rows = lines(result)
    out.say(result["title"], style="bold")
    out.say(f"{result['source']}. {result['note']}".strip())
    out.table(header, rows)
    for name, why in result["not drawn"].items():
        out.say(f"{name} was not drawn: {why}")
    pictures = {f"picture {name}": folder / file for name, file in result["pictures"].items()}
    table = result_file(result["reproduction"], folder)
    out.facts({"table": table, "report": report, **pictures, "runs": folder})
    return exit_code(result)


def _list(args: Namespace, folder: Path, out: Output) -> int:
    if args.only or args.report or args.again:
        raise ConfigError("reproduction: expected a name beside --only, --report and --again, got none")
    from torchcaps.reproduce import list_reproductions, load_reproduction, result_file

    documents, rows = [], []
    for name in list_reproductions():
        entry, file = load_reproduction(name), result_file(name, folder)
        result = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}
        measured = {row["label"]: row["measured"] for row in result["rows"]}
        document = asdict(entry)
        for network in document["networks"]:
            network["measured"] = measured.get(network["label"], {})
            first = [name, entry.title] if network is document["networks"][0] else ["", ""]
            rows.append([*first, network["label"], _cells(network["paper"]), _cells(network["measured"])])
        documents.append({**document, "result": file if file.exists() else None})
    out.document(documents)
    out.table(("reproduction", "what it is", "network", "paper, %", "ours, %"), rows)
    return 0


def _cells(columns: dict[str, Any]) -> str:
    from torchcaps.bench.compare_table import number

    words = {name: number(value, 2) if isinstance(value, dict) else f"{value:g}" for name, value in columns.items()}
    return ", ".join(f"{name} {value}" for name, value in words.items() if value)


VERB = Verb(
    name="reproduce",
    summary="train, measure and draw a published table or picture anew",
    description="Lists the published tables and pictures that are reproduced here, with the paper's numbers and those "
    "that were measured. Given a name, trains its networks, each an ordinary run in one folder, measures them, draws "
    "its pictures, and sets paper and ours side by side. Reproductions share runs of the same recipe. The same command "
    "goes on where it was stopped; a network that fails is told with its reason, and the others go on. With "
    "trainer.precision=bf16-mixed it computes the same, faster on a processor that can; other changes make a trial.",
    examples=(
        ("torchcaps reproduce", "all of them, with what the papers say"),
        ("torchcaps reproduce mnist_table1", "train what is missing, measure, draw and report"),
        ("torchcaps reproduce mnist_table1 trainer.epochs=1", "a trial with less training, in a folder of its own"),
        ("torchcaps reproduce mnist_table1 --report", "what is finished so far, without training"),
    ),
    configure=_configure,
    run=_run,
)
