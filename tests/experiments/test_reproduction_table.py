from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchcaps.experiments import (
    FigureFile,
    NetworkMetrics,
    NetworkRow,
    NetworkRun,
    Reproduction,
    ReproductionResult,
    load_reproduction,
    plan_runs,
    reproduction_lines,
    reproduction_markdown,
    summarize_network,
)

from .entries import write_entry

MACHINE = {"cores": 2, "processor": "a processor"}


def run(seed: int, columns: dict[str, float], folder: str = "x", **values: Any) -> NetworkRun:
    metrics = NetworkMetrics(columns, 5, 12345, 90.0, MACHINE, **values)
    return NetworkRun(seed, folder, "finished", metrics)


def result_of(entry: Reproduction, rows: list[NetworkRow], **values: Any) -> ReproductionResult:
    return ReproductionResult(
        entry.name, entry.title, entry.source, entry.note, entry.metric, ["error"], [], "partial", "", rows, **values
    )


@pytest.fixture
def entry(tmp_path):
    return load_reproduction(write_entry(tmp_path))


@pytest.fixture
def rows(entry) -> list[NetworkRow]:
    cnn, capsules = entry.networks
    folders = [planned.folder for planned in plan_runs(entry)]
    return [
        summarize_network(cnn, [run(0, {"error": 0.5}, folders[0]), run(1, {"error": 0.7}, folders[2])], {}),
        summarize_network(capsules, [NetworkRun(0, folders[1], "failed", error="no | way")], {}),
    ]


@pytest.fixture
def result(entry, rows) -> ReproductionResult:
    figure = FigureFile("figures/tiny-vote_plane.png", "A caption.", "Votes of a class")
    return result_of(entry, rows, figures={"vote_plane": figure})


def test_paper_and_ours(rows):
    head, cnn, capsules = reproduction_lines(rows, ["error"])
    assert head == ["network", "per cent", "paper", "ours", "epochs", "parameters", "minutes", "runs", "note"]
    assert cnn == ["CNN", "error ↓", "0.39", "0.60 ± 0.14", "5", "12,345", "1.5", "2", ""]
    assert capsules == ["Capsules, 1 iteration", "", "", "", "", "", "", "0", "seed 0: no | way"]
    assert reproduction_lines(rows, ["error"], machine=True)[1][8] == "2 cores, a processor"


def test_precision_other_than_the_default(entry):
    runs = [run(0, {"error": 1.0}, precision="32-true"), run(1, {"error": 1.0}, precision="bf16-mixed")]
    table = reproduction_lines([summarize_network(entry.networks[0], runs, {})], ["error"], machine=True)
    assert table[1][8] == "2 cores, a processor; 2 cores, a processor, bf16-mixed"


def test_warnings_are_notes(entry):
    row = summarize_network(entry.networks[0], [run(0, {"error": 1.0}, warning="below the target")], {})
    assert reproduction_lines([row], ["error"])[1][-1] == "seed 0: below the target"


def test_one_line_per_column():
    (network,) = load_reproduction("smallnorb").networks
    row = summarize_network(network, [run(0, {"error": 4.0, "error, 13 crops": 3.5})], {})
    table = reproduction_lines([row], ["error", "error, 13 crops"])
    assert [cells[:4] for cells in table[1:]] == [
        [network.label, "error ↓", "2.2", "4.00"],
        ["", "error, 13 crops ↓", "", "3.50"],
    ]
    assert table[2][4:] == [""] * 4


def test_markdown(entry, result):
    text = reproduction_markdown(entry, result)
    assert text.startswith(
        "## Tiny <table>\n\nSomebody 2026, table 1. Two steps each.\n\n`torchcaps reproduce tiny`\n\n| "
    )
    assert "| CNN | error ↓ | 0.39 | 0.60 ± 0.14 | 5 | 12,345 | 1.5 | 2 | 2 cores, a processor |  |" in text
    assert r"seed 0: no \| way" in text
    assert "![Votes of a class](images/reproduce-tiny-vote_plane.png)" in text
    counts = {line.replace(r"\|", "").count("|") for line in text.splitlines() if line.startswith("|")}
    assert counts == {11}


def test_markdown_without_result(entry, result):
    text = reproduction_markdown(entry, None)
    assert "`torchcaps reproduce tiny`: not run yet." in text
    assert "| CNN | error ↓ | 0.39 |  |  |  |  | 0 |  |" in text
    failed = replace(result, rows=result.rows[1:])
    assert "`torchcaps reproduce tiny`: not run yet." in reproduction_markdown(entry, failed)


def test_changed_recipe_is_marked(entry, result):
    assert "changed since" not in reproduction_markdown(entry, result)
    cnn, capsules = result.rows
    runs = [replace(each, folder=each.folder.replace("-seed", "0-seed")) for each in cnn.runs]
    text = reproduction_markdown(entry, replace(result, rows=[replace(cnn, runs=runs), capsules]))
    line = next(line for line in text.splitlines() if line.startswith("| CNN"))
    assert line.endswith("| the recipe has changed since |")


def test_current_numbers_of_the_paper(entry, result):
    cnn, capsules = result.rows
    old = replace(result, rows=[replace(cnn, paper={"error": 0.4}), capsules])
    assert "| CNN | error ↓ | 0.39 |" in reproduction_markdown(entry, old)
