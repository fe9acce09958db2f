from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from torchcaps.cli._output import Output


def test_no_json_without_option(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.document({"a": 1})
    out.say("[bold]a name[/bold] :smile: 12")
    assert capsys.readouterr().out == "[bold]a name[/bold] :smile: 12\n"


def test_json_prints_only_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.say("words")
    out.facts({"a": 1})
    out.table(("a",), [(1,)])
    with out.progress("work") as progress:
        progress(1, 2)
    with out.stdout_kept():
        print("from somebody else")
    out.document({"path": Path("x"), "nan": [math.nan, math.inf, 1.5], 3: ("é", None)})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"path": "x", "nan": [None, None, 1.5], "3": ["é", None]}
    assert captured.err == "from somebody else\n"


def test_table_contents(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("name", "count"), [("[red]", 1234567), ("b", 5)])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == lines[-1] == ""
    assert [line.split() for line in lines[1:-1] if "─" not in line] == [
        ["name", "count"],
        ["[red]", "1,234,567"],
        ["b", "5"],
    ]


def test_booleans_are_written_as_toml(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("option", "default"), [("leaky", False), ("normalise", True), ("iters", 3)])
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert words[3:-1] == [["leaky", "false"], ["normalise", "true"], ["iters", "3"]]


def test_long_path_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/".join(["folder"] * 100)
    Output().facts({"report": path})
    assert capsys.readouterr().out == f"report  {path}\n"
