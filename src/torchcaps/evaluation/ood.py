"""The protocol `ood`: how well scores separate images of other data sets from the test images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchcaps.data import ImageDataset, load_data
from torchcaps.errors import ConfigError, DataError
from torchcaps.evaluation.protocols import PROTOCOLS, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.evaluation.rejection import detection, novelty_of_data
from torchcaps.models import ImageModel
from torchcaps.types import Progress

OTHERS = ("mnist", "fashion_mnist", "kmnist", "cifar10", "svhn")


def by_novelty(
    model: ImageModel, data: ImageDataset, others: Iterable[ImageDataset], *, progress: Progress | None = None
) -> ProtocolResult:
    """Measure how well each score of `novelty` separates other data sets from the test images.

    Args:
        model: The network.
        data: Test images of the classes.
        others: Images of other classes.
        progress: Called with (done, total) after each batch.

    Returns:
        For each data set and score: area under the ROC curve, and share of the other images that are accepted where
        95 % of the test images are.

    Raises:
        ConfigError: If there is no other data set, or a score is not finite.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(8))
        >>> [row.name for row in by_novelty(create_model("cnn_small"), few, [few]).rows]
        ['digits, activation', 'digits, energy']
    """
    known, rows = novelty_of_data(model, data, progress=progress), []
    for other in others:
        new = novelty_of_data(model, other, progress=progress)
        rows += [
            ProtocolRow(f"{other.name}, {name}", len(other), detection(known[name], new[name])) for name in sorted(new)
        ]
    if not rows:
        raise ConfigError(
            f"others: expected at least one data set of other classes, got 0 for images {data.image_shape} (tried "
            f"{', '.join(OTHERS)}: those with images of this shape that are available)"
        )
    question = "How well do scores separate images of other classes from the test images?"
    columns = ("AUROC", "FPR at 95 % TPR")
    return ProtocolResult("ood", question, data.name, data.origin, columns, tuple(rows))


@PROTOCOLS.register("ood")
def _ood(run: TrainedRun, progress: Progress) -> ProtocolResult:
    data = run.load_data("test")
    return by_novelty(run.load_model(), data, _others(data), progress=progress)


def _others(data: ImageDataset) -> Iterator[ImageDataset]:
    """Yield the test splits of data sets of other classes that are available and have images of the same shape."""
    for name in OTHERS:
        try:
            other = load_data(name, "test")
        except DataError:
            continue
        # The digits of the package, and folds, have the classes of MNIST under another name.
        if other.image_shape == data.image_shape and other.class_names != data.class_names:
            yield other
