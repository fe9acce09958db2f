"""What a claim about capsules is: the comparisons of recorded numbers by which it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torchcaps._registry import Registry
from torchcaps.experiments.metrics import is_lower_better


class Cell(NamedTuple):
    """A recorded number.

    Attributes:
        source: A reproduction, or `protocol:NAME`.
        label: The network.
        column: The column; for a protocol `row / column`, where the start of the row's name is enough.
    """

    source: str
    label: str
    column: str


@dataclass(frozen=True)
class Comparison:
    """Two recorded numbers, of which the claim says that the first is better.

    Attributes:
        name: What is compared.
        first: The number of the network that the claim is about.
        second: That of the control.
        images: Number of test images of each, for the uncertainty of the difference; 0 if the record has intervals.
        lower: Whether lower is better.
    """

    name: str
    first: Cell
    second: Cell
    images: int
    lower: bool = False


@dataclass(frozen=True)
class LectureClaim:
    """A claim.

    Attributes:
        name: Name on the command line.
        statement: The claim in one sentence.
        protocol: How it is tested.
        recipe: The command that trains the networks.
        control: What the capsules are compared with.
        comparisons: The comparisons; none if it has not been measured.
        figure: A picture of the docs beside the figure of the gains, if there is one.
        caveat: What the comparison does not show.
        further: Reproductions of the claim without a comparison, such as the same test at another budget.
    """

    name: str
    statement: str
    protocol: str
    recipe: str
    control: str
    comparisons: tuple[Comparison, ...] = ()
    figure: str = ""
    caveat: str = ""
    further: tuple[str, ...] = ()


LECTURE_CLAIMS: Registry[LectureClaim] = Registry("claim")


def add_claim(claim: LectureClaim) -> None:
    """Add a claim to the registry.

    Args:
        claim: The claim.
    """
    LECTURE_CLAIMS.add(claim.name, claim)


def between(source: str, first: str, second: str, column: str, images: int, *, name: str = "") -> Comparison:
    """Compare two networks of a reproduction in one column.

    Args:
        source: The reproduction.
        first: Label of the network that the claim is about.
        second: Label of the control.
        column: The column.
        images: Number of test images of each.
        name: What is compared; by default both labels.

    Returns:
        The comparison.
    """
    title = name or f"{first} against {second}"
    return Comparison(title, Cell(source, first, column), Cell(source, second, column), images, is_lower_better(column))
