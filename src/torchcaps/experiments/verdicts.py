"""Verdicts on the claims of the lectures, computed from recorded results."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from torchcaps.errors import DataError
from torchcaps.experiments.lecture_claims import LECTURE_CLAIMS, Cell, Comparison, LectureClaim
from torchcaps.experiments.recorded import load_recorded
from torchcaps.experiments.reproductions import list_reproductions, load_reproduction
from torchcaps.experiments.statistics import Statistic

Judgement = Literal["holds", "holds partly", "does not hold here", "not measured yet"]
FILE = "recorded_protocols.json"
_Z = 1.96
# The 97.5 % quantiles of Student's distribution for 2, 3, ... runs.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


@dataclass(frozen=True)
class ComparedNumbers:
    """The numbers of a comparison.

    Attributes:
        name: What is compared.
        first: The number of the network that the claim is about.
        second: That of the control.
        gain: How much better the first is, in the same unit; negative if it is worse.
        margin: A gain above it is not chance of the test images (95 %).
        runs: Number of runs behind the smaller of both records.
        outdated: Whether the recipe of one of them has changed since.
    """

    name: str
    first: float
    second: float
    gain: float
    margin: float
    runs: int
    outdated: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the first is better by more than the margin."""
        return self.gain > self.margin


@dataclass(frozen=True)
class Verdict:
    """A claim with what was measured.

    Attributes:
        claim: The claim.
        judgement: `holds` if all comparisons are met, `holds partly` if some are, `does not hold here` if none is.
        numbers: The numbers of its comparisons.
        pending: Reproductions of the claim of which no result, or not that of each network, is recorded yet.
    """

    claim: LectureClaim
    judgement: Judgement
    numbers: tuple[ComparedNumbers, ...]
    pending: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns:
            A dictionary.
        """
        about = asdict(self.claim)
        del about["comparisons"]
        sources = sorted({each.first.source for each in self.claim.comparisons})
        numbers = [{**asdict(each), "is_met": each.is_met} for each in self.numbers]
        return {
            **about,
            "verdict": self.judgement,
            "sources": sources,
            "numbers": numbers,
            "pending": list(self.pending),
        }

    @property
    def summary(self) -> str:
        """By how much, in one line."""
        return "; ".join(
            f"{each.name}: {each.first:.2f} against {each.second:.2f} ({each.gain:+.2f} ± {each.margin:.2f})"
            + (", earlier recipe" if each.outdated else "")
            for each in self.numbers
        )


def judge(claim: LectureClaim) -> Verdict:
    """Compute the verdict on a claim.

    Numbers are percentages, or R2. A difference counts if it exceeds the 95 % interval that follows from the number of
    test images, or from the recorded intervals, and from the deviation over the seeds where several were run.
    Comparisons of networks that have not been run yet do not count.

    Args:
        claim: The claim.

    Returns:
        The verdict.

    Raises:
        DataError: If a recorded number that a comparison names does not exist.

    Example:
        >>> judge(LECTURE_CLAIMS["affine"]).judgement
        'holds partly'
    """
    left = [each for each in claim.comparisons if _is_pending(each.first) or _is_pending(each.second)]
    numbers = tuple(_compare(each) for each in claim.comparisons if each not in left)
    pending = [each.first.source for each in left] + [name for name in claim.further if name not in load_recorded()]
    met = sum(each.is_met for each in numbers)
    judgement: Judgement = "holds partly" if met else "does not hold here"
    if met == len(numbers):
        judgement = "holds" if numbers else "not measured yet"
    return Verdict(claim, judgement, numbers, tuple(dict.fromkeys(pending)))


def _is_pending(cell: Cell) -> bool:
    """Return whether a number is that of a network of a reproduction that has not been run yet."""
    if ":" in cell.source or cell.source not in list_reproductions():
        return False
    labels = {network.label for network in load_reproduction(cell.source).networks}
    return cell.label in labels and cell.label not in load_recorded().get(cell.source, {})


def judge_all() -> list[Verdict]:
    """Return the verdicts on all claims.

    Returns:
        One verdict per claim, in the order of the registry.

    Example:
        >>> {verdict.claim.name for verdict in judge_all()} >= {"overlap", "affine"}
        True
    """
    return [judge(LECTURE_CLAIMS[name]) for name in LECTURE_CLAIMS]


def _compare(comparison: Comparison) -> ComparedNumbers:
    (first, spread, runs, old), (second, other, others, older) = map(_look_up, (comparison.first, comparison.second))
    margins = [spread, other]
    if comparison.images:
        shares = [value / 100 for value in (first, second)]
        margins += [100 * _Z * math.sqrt(share * (1 - share) / comparison.images) for share in shares]
    gain = second - first if comparison.lower else first - second
    margin = math.hypot(*margins)
    return ComparedNumbers(comparison.name, first, second, gain, margin, min(runs, others), old or older)


def _look_up(cell: Cell) -> tuple[float, float, int, bool]:
    """Return a recorded number, half of its interval (0 if there is none), its number of runs, and whether it is old.

    The interval of a protocol is over its images, that of a reproduction over its seeds.
    """
    kind, _, name = cell.source.rpartition(":")
    try:
        if kind == "protocol":
            row, _, column = cell.column.partition(" / ")
            rows = _protocols()[name][cell.label]
            found = next(values for title, values in rows.items() if title.startswith(row))[column]
            return found["value"], (found["high"] - found["low"]) / 2, 1, False
        network = load_recorded()[name][cell.label]
        found = network.columns[cell.column]
    except (KeyError, StopIteration):
        raise DataError(f"claims: expected a record of {' / '.join(cell)}, but there is none") from None
    return found.mean, _seed_margin(found), found.count, network.outdated


def _seed_margin(found: Statistic) -> float:
    """Return half of the 95 % interval of a mean over seeds, by Student's distribution; 0 for a single seed."""
    if found.std is None:
        return 0.0
    return _STUDENT[min(found.count - 2, len(_STUDENT) - 1)] * found.std / math.sqrt(found.count)


@cache
def _protocols() -> dict[str, dict[str, dict[str, dict[str, dict[str, float]]]]]:
    return json.loads((resources.files("torchcaps") / "reproductions" / FILE).read_text("utf-8"))
