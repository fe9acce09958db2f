from __future__ import annotations

from typing import Any

import pytest

from torchcaps.reproduce import lines, load_reproduction, markdown, plan
from torchcaps.reproduce.table import summarise

from .entries import write_entry


def run(seed: int, folder: str = "x", **measured: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "folder": folder,
        "status": "finished",
        "measured": measured,
        "epochs": 5,
        "seconds": 90.0,
        "parameters": 12345,
        "machine": {"cores": 2, "processor": "a processor"},
    }


@pytest.fixture
def entry(tmp_path):
    return load_reproduction(write_entry(tmp_path))


@pytest.fixture
def result(entry):
    cnn, capsules = entry.networks
    folders = [planned.folder for planned in plan(entry)]
    rows = [
        summarise(cnn, [run(0, folders[0], error=0.5), run(1, folders[2], error=0.7)]),
        summarise(capsules, [{"seed": 0, "folder": folders[1], "status": "failed", "error": "no | way"}]),
    ]
    return {"columns": ["error"], "rows": rows, "pictures": {"vote_plane": "pictures/tiny-vote_plane.png"}}


def test_paper_and_ours_stand_side_by_side(result):
    head, cnn, capsules = lines(result)
    assert head == ["network", "in per cent", "paper", "ours", "epochs", "parameters", "minutes", "runs", "note"]
    assert cnn == ["CNN", "error", "0.39", "0.60 ± 0.14", "5", "12,345", "1.5", "2", ""]
    assert capsules == ["Capsules, 1 iteration", "", "", "", "", "", "", "0", "seed 0: no | way"]
    assert lines(result, machine=True)[1][8] == "2 cores, a processor"


def test_a_precision_other_than_the_usual_one_is_told_beside_the_machine(entry):
    runs = [{**run(0, error=1.0), "precision": "32-true"}, {**run(1, error=1.0), "precision": "bf16-mixed"}]
    table = lines({"columns": ["error"], "rows": [summarise(entry.networks[0], runs)]}, machine=True)
    assert table[1][8] == "2 cores, a processor; 2 cores, a processor, bf16-mixed"


def test_a_run_that_never_got_to_where_it_was_to_stop_is_told(entry):
    row = summarise(entry.networks[0], [{**run(0, error=1.0), "short": "to be stopped at 99 %"}])
    assert lines({"columns": ["error"], "rows": [row]})[1][-1] == "seed 0: to be stopped at 99 %"


def test_every_column_has_a_line(entry):
    (network,) = load_reproduction("smallnorb").networks
    row = summarise(network, [run(0, "x", **{"error": 4.0, "error, 13 crops": 3.5})])
    table = lines({"columns": ["error", "error, 13 crops"], "rows": [row]})
    assert [cells[:4] for cells in table[1:]] == [
        [network.label, "error", "2.2", "4.00"],
        ["", "error, 13 crops", "", "3.50"],
    ]
    assert table[2][4:] == [""] * 4


def test_a_section_of_the_page(entry, result):
    text = markdown(entry, result)
    assert text.startswith(
        "## Tiny <table>\n\nNobody 2026, table 1. Two steps each.\n\n`torchcaps reproduce tiny`\n\n| "
    )
    assert "| CNN | error | 0.39 | 0.60 ± 0.14 | 5 | 12,345 | 1.5 | 2 | 2 cores, a processor |  |" in text
    assert r"seed 0: no \| way" in text
    assert "![Vote plane: Tiny <table>](images/reproduce-tiny-vote_plane.png)" in text
    counts = {line.replace(r"\|", "").count("|") for line in text.splitlines() if line.startswith("|")}
    assert counts == {11}


def test_what_has_no_result_is_there_too(entry):
    text = markdown(entry, None)
    assert "`torchcaps reproduce tiny`: not run yet." in text
    assert "| CNN | error | 0.39 |  |  |  |  | 0 |  |" in text


def test_a_result_without_a_finished_run_is_none(entry, result):
    result["rows"] = result["rows"][1:]
    assert "`torchcaps reproduce tiny`: not run yet." in markdown(entry, result)


def test_a_recipe_that_has_changed_since_is_marked(entry, result):
    assert "earlier recipe" not in markdown(entry, result)
    for row in result["rows"][0]["runs"]:
        row["folder"] = row["folder"].replace("-seed", "0-seed")
    cnn = next(line for line in markdown(entry, result).splitlines() if line.startswith("| CNN"))
    assert cnn.endswith("| made with an earlier recipe |")


def test_the_papers_numbers_are_those_of_the_entry(entry, result):
    result["rows"][0]["paper"] = {"error": 0.4}
    assert "| CNN | error | 0.39 |" in markdown(entry, result)
