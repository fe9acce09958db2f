from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from torchcaps.cli import main
from torchcaps.errors import DataError
from torchcaps.experiments import LECTURE_CLAIMS, judge, judge_all
from torchcaps.experiments.lecture_claims import Cell, Comparison, LectureClaim
from torchcaps.experiments.recorded import RecordedNetwork
from torchcaps.experiments.reproductions import list_reproductions
from torchcaps.experiments.statistics import Statistic

ROOT = Path(__file__).parents[2]


def claim(*pairs: tuple[float, float], images: int = 10_000, lower: bool = False) -> LectureClaim:
    cells = [(Cell("made", f"a{n}", "x"), Cell("made", f"b{n}", "x")) for n in range(len(pairs))]
    return LectureClaim("c", "s", "p", "r", "k", tuple(Comparison("n", a, b, images, lower) for a, b in cells))


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch):
    def write(*pairs: tuple[float, float]) -> None:
        made = {
            f"{letter}{n}": RecordedNetwork({"x": Statistic(value, None, 1)}, 1, 1, 1, "")
            for n, pair in enumerate(pairs)
            for letter, value in zip("ab", pair, strict=True)
        }
        monkeypatch.setattr("torchcaps.experiments.verdicts.load_recorded", lambda: {"made": made})

    return write


@pytest.mark.parametrize(("pairs", "verdict"), [
    ([(95, 90)], "holds"), ([(90.1, 90)], "does not hold here"), ([(80, 90)], "does not hold here"),
    ([(95, 90), (80, 90)], "holds partly"), ([(95, 90), (96, 90)], "holds"), ([], "not measured yet"),
])  # fmt: skip
def test_verdict_follows_from_the_record(record, pairs: list[tuple[float, float]], verdict: str) -> None:
    record(*pairs)
    assert judge(claim(*pairs)).judgement == verdict


def test_margin_by_hand(record) -> None:
    record((20.0, 25.0))
    (numbers,) = judge(claim((20, 25), images=400, lower=True)).numbers
    assert (numbers.gain, numbers.runs) == (5.0, 1)
    assert numbers.margin == pytest.approx(196 * math.sqrt(0.2 * 0.8 / 400 + 0.25 * 0.75 / 400))
    assert not numbers.is_met


def test_margin_of_seeds_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "a0": RecordedNetwork({"x": Statistic(90.0, 1.0, 3)}, 1, 3, 1, ""),
        "b0": RecordedNetwork({"x": Statistic(80.0, 2.0, 4)}, 1, 4, 1, ""),
    }
    monkeypatch.setattr("torchcaps.experiments.verdicts.load_recorded", lambda: {"made": made})
    (numbers,) = judge(claim((90, 80), images=0)).numbers
    # Student's quantiles for two and three degrees of freedom.
    assert numbers.margin == pytest.approx(math.hypot(4.30 * 1 / math.sqrt(3), 3.18 * 2 / math.sqrt(4)))
    assert numbers.runs == 3


def test_networks_that_were_not_run_do_not_count(record) -> None:
    record((20.0, 25.0))
    known = claim((20, 25), lower=True).comparisons
    first, second = (Cell("crowding", label, "predicted, different") for label in ("CapsNet", "CNN"))
    both = LectureClaim("c", "s", "p", "r", "k", (*known, Comparison("n", first, second, 10)), further=("critics",))
    verdict = judge(both)
    assert (verdict.judgement, len(verdict.numbers), verdict.pending) == ("holds", 1, ("crowding", "critics"))
    none = judge(LectureClaim("c", "s", "p", "r", "k", both.comparisons[1:]))
    assert (none.judgement, none.pending) == ("not measured yet", ("crowding",))
    wrong = Cell("crowding", "no such network", "predicted, different")
    unknown = LectureClaim("c", "s", "p", "r", "k", (Comparison("n", wrong, wrong, 10),))
    with pytest.raises(DataError, match="no such network"):
        judge(unknown)


def test_missing_record(record) -> None:
    record((20.0, 25.0))
    with pytest.raises(DataError, match="a1"):
        judge(claim((1, 2), (1, 2)))


@pytest.mark.parametrize("name", list(LECTURE_CLAIMS))
def test_claim_can_be_judged(name: str) -> None:
    found = judge(LECTURE_CLAIMS[name])
    assert found.judgement in ("holds", "holds partly", "does not hold here", "not measured yet")
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["name"] == name
    for comparison in found.claim.comparisons:
        kind, _, source = comparison.first.source.rpartition(":")
        file = f"protocol-{source}.json" if kind else f"reproduce-{source}.json"
        assert source in found.pending or (ROOT / "results" / file).is_file()
        assert kind or source in list_reproductions()
    assert set(found.claim.further) <= set(list_reproductions())
    if found.numbers:
        for figure in filter(None, (f"claims-{name}.svg", found.claim.figure)):
            assert (ROOT / "docs" / "images" / figure).is_file()


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["verdict"] for each in listed] == [each.judgement for each in judge_all()]
    assert main(["claims", "affine"]) == 0
    out = capsys.readouterr().out
    assert "margin" in out
    assert "CNN" in out
    assert main(["claims", "afine"]) == 2
    assert "'affine'" in capsys.readouterr().err


def test_numbers_of_an_earlier_recipe_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {
        "a0": RecordedNetwork({"x": Statistic(90.0, None, 1)}, 1, 1, 1, ""),
        "b0": RecordedNetwork({"x": Statistic(80.0, None, 1)}, 1, 1, 1, "", outdated=True),
    }
    monkeypatch.setattr("torchcaps.experiments.verdicts.load_recorded", lambda: {"made": made})
    verdict = judge(claim((90, 80)))
    assert verdict.numbers[0].outdated
    assert verdict.summary.endswith(", earlier recipe")
    assert verdict.to_json()["numbers"][0]["outdated"]
    monkeypatch.setitem(LECTURE_CLAIMS._items, "made", verdict.claim)
    assert main(["claims", "made"]) == 0
    assert "earlier recipe: n" in capsys.readouterr().out
