"""Claims about capsules from the lectures, each with the comparisons by which it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torchcaps._registry import Registry


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
        figure: A figure in the docs, if there is one.
        caveat: What the comparison does not show.
    """

    name: str
    statement: str
    protocol: str
    recipe: str
    control: str
    comparisons: tuple[Comparison, ...] = ()
    figure: str = ""
    caveat: str = ""


LECTURE_CLAIMS: Registry[LectureClaim] = Registry("claim")


def _add(claim: LectureClaim) -> None:
    LECTURE_CLAIMS.add(claim.name, claim)


def _between(source: str, first: str, second: str, column: str, images: int, *, name: str = "") -> Comparison:
    """Compare two networks of a reproduction in one column; errors are better if lower."""
    title = name or f"{first} against {second}"
    return Comparison(title, Cell(source, first, column), Cell(source, second, column), images, "error" in column)


_POSE, _HIDDEN = "pose of the class", "features before the scores"
_add(
    LectureClaim(
        name="separation",
        statement="Pose and presence are separated: the pose encodes the viewpoint.",
        protocol="pose: R2 of known shifts, angles and scales of MNIST digits",
        recipe="torchcaps eval RUN --protocol pose",
        control="features of a CNN before its scores",
        comparisons=tuple(
            Comparison(
                f"R2 of {factor}",
                Cell("protocol:pose", "mnist_dynamic", f"{_POSE} / {factor}"),
                Cell("protocol:pose", "mnist_cnn", f"{_HIDDEN} / {factor}"),
                images=0,
            )
            for factor in ("angle", "scale", "shear", "shift right", "shift down")
        ),
        caveat="One network of each kind; the CNN has half of the parameters.",
    )
)
_add(
    LectureClaim(
        name="picasso",
        statement="Parts in wrong places do not make a whole.",
        protocol="picasso: share of false wholes at equal true-positive rate",
        recipe="not written yet",
        control="a CNN on the same images",
    )
)
_add(
    LectureClaim(
        name="viewpoints",
        statement="New viewpoints need no new data.",
        protocol="viewpoints: error on new azimuths and elevations of smallNORB",
        recipe="torchcaps reproduce viewpoints",
        control="the CNN of Hinton et al. 2018, with 62 times as many parameters",
        comparisons=tuple(
            _between("viewpoints", f"Matrix capsules, {kind}", f"CNN, {kind}", "novel error", images)
            for kind, images in (("azimuth", 6_480), ("elevation", 16_200))
        ),
        caveat="Not at matched error on familiar viewpoints; few epochs.",
    )
)
_add(
    LectureClaim(
        name="data_efficiency",
        statement="Capsules need less data.",
        protocol="10 to 5,000 images per class",
        recipe="not written yet",
        control="the same backbone without capsules",
    )
)
_add(
    LectureClaim(
        name="overlap",
        statement="Overlapping objects are segmented.",
        protocol="overlap: both digits of MultiMNIST correct",
        recipe="torchcaps reproduce multimnist",
        control="a CNN with half of the parameters and a fifth of the time",
        comparisons=(
            _between("multimnist", "Residual CapsNet, self-attention, reconstruction", "CNN", "both correct", 10_000),
        ),
        figure="reproduce-multimnist-reconstructions.png",
        caveat="The control is smaller and was trained for a shorter time.",
    )
)
_add(
    LectureClaim(
        name="affine",
        statement="Affine changes are withstood.",
        protocol="affine: trained on translated digits, tested on affine ones, at matched accuracy",
        recipe="torchcaps reproduce affine",
        control="a CNN, and a CNN with global average pooling",
        comparisons=(
            _between("affine", "CapsNet", "CNN", "accuracy on affine_mnist", 10_000),
            _between(
                "affine",
                "Matrix capsules, EM routing",
                "CNN with global average pooling",
                "accuracy on affine_mnist",
                10_000,
            ),
            _between("affine", "CapsNet", "CNN with global average pooling", "accuracy on affine_mnist", 10_000),
        ),
        figure="reproduce-affine-affine_predictions.png",
    )
)
_add(
    LectureClaim(
        name="crowding",
        statement="Two identical objects close together cannot both be seen.",
        protocol="crowding: two identical digits at growing distance",
        recipe="not written yet",
        control="two different digits at the same distance",
    )
)
_add(
    LectureClaim(
        name="iterations",
        statement="More routing iterations help, then overfit.",
        protocol="test error by number of iterations",
        recipe="torchcaps reproduce smallnorb_iterations, cifar_iterations, mnist_table1",
        control="the same network with another number of iterations",
        comparisons=(
            _between("smallnorb_iterations", "2 iterations", "1 iteration", "error", 24_300),
            _between("smallnorb_iterations", "2 iterations", "3 iterations", "error", 24_300),
            _between("cifar_iterations", "3 iterations", "1 iteration", "error", 10_000, name="CIFAR-10: 3 against 1"),
            _between(
                "mnist_table1",
                "CapsNet, 3 iterations, reconstruction",
                "CapsNet, 1 iteration, reconstruction",
                "error",
                10_000,
                name="MNIST: 3 against 1",
            ),
        ),
        figure="reproduce-cifar_iterations-training_loss.png",
    )
)
_add(
    LectureClaim(
        name="reconstruction",
        statement="Reconstruction regularises.",
        protocol="test error with and without reconstruction",
        recipe="torchcaps reproduce mnist_table1",
        control="the same network without a decoder",
        comparisons=tuple(
            _between(
                "mnist_table1",
                f"CapsNet, {iters}, reconstruction",
                f"CapsNet, {iters}, no reconstruction",
                "error",
                10_000,
            )
            for iters in ("1 iteration", "3 iterations")
        ),
        figure="reproduce-mnist_table1-reconstructions.png",
    )
)
_add(
    LectureClaim(
        name="synchronisation",
        statement="Synchronisation may do what routing does.",
        protocol="binding of overlapping shapes by phase, adjusted Rand index",
        recipe="not written yet",
        control="capsules on the same data",
    )
)
