"""The protocol `faithfulness`: whether the pixels that an explanation names are those that the network uses."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import ConfigError, MissingPackageError
from torchcaps.evaluation.protocols import PROTOCOLS, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.evaluation.saliency_maps import SALIENCY, make_explainer
from torchcaps.models import ImageModel
from torchcaps.nn import Scores, routing_layers
from torchcaps.types import Progress

# Images of the test split, and steps of the curves.
IMAGES, STEPS, BATCH = 256, 20, 32


@torch.no_grad()
def deletion_curve(model: ImageModel, images: Tensor, labels: Tensor, maps: Tensor, *, insert: bool = False) -> Tensor:
    """Return the probability of a class while pixels are replaced, the most relevant first (Petsiuk et al. 2018).

    A pixel is replaced by the median of its image and channel, which is the background of digits and of smallNORB; so
    are the samples of signals and the voxels of volumes. A token is replaced by padding.

    Args:
        model: The network, in evaluation mode.
        images: The images.
        labels: The class of each image.
        maps: Relevance of the pixels.
        insert: Whether to start from the replaced image and insert pixels instead.

    Shape:
        images: [B, C, H, W] or of another number of axes; labels: [B]; maps: [B, H, W]; returns [B, 21].

    Returns:
        The probability after 0 %, 5 %, ... 100 % of the pixels.

    Example:
        >>> from torchcaps import create_model
        >>> model, images = create_model("cnn_small").eval(), torch.rand(2, 1, 28, 28)
        >>> deletion_curve(model, images, torch.tensor([1, 2]), torch.rand(2, 28, 28)).shape
        torch.Size([2, 21])
    """
    scores = Scores(model)
    medians = images.flatten(2).median(dim=2, keepdim=True).values  # [B, C, 1]
    if model.reads_tokens:
        medians = torch.zeros_like(medians)
    plain = medians.expand_as(images.flatten(2)).view_as(images)  # [B, C, H, W]
    # The place of each pixel in the order of relevance, from 0.
    rank = (
        maps.flatten(1)
        .argsort(dim=1, descending=True, stable=True)
        .argsort(dim=1)
        .view(len(images), 1, *maps.shape[1:])
    )
    curve = []
    for step in range(STEPS + 1):
        first = rank < round(step / STEPS * maps[0].numel())  # [B, 1, H, W]
        mixed = torch.where(first == insert, images, plain)
        curve.append(scores(mixed).gather(1, labels[:, None]).squeeze(1))
    return torch.stack(curve, dim=1)  # [B, 21]


def by_deletion(
    model: ImageModel, data: ImageDataset, *, methods: Iterable[str] | None = None, progress: Progress | None = None
) -> ProtocolResult:
    """Measure the faithfulness of explanations of the predicted class by deletion and insertion of pixels.

    Args:
        model: The network.
        data: Test images; at most 256, evenly spaced, are used.
        methods: Methods of `SALIENCY`. Default: all that the model and the installed packages support.
        progress: Called with (done, total) after each batch.

    Returns:
        One row per method: the mean probability of the class while pixels are deleted (lower is better) and while they
        are inserted (higher is better).

    Raises:
        ConfigError: If there are no images, or the network gives values that are not finite.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(4))
        >>> [row.name for row in by_deletion(create_model("cnn_small"), few, methods=["random"]).rows]
        ['random']
    """
    if not len(data):
        raise ConfigError(f"data: expected at least one image, got 0 ({data.name}, {data.split})")
    chosen = torch.linspace(0, len(data) - 1, min(IMAGES, len(data))).round().long().unique()
    was_training = model.training
    model.eval()
    try:
        found = list(methods) if methods is not None else _supported(model)
        sums = {name: torch.zeros(2, dtype=torch.float64) for name in found}
        explainers = {name: make_explainer(model, name) for name in found}
        for done, indices in enumerate(chosen.split(BATCH)):
            images = to_float(data.batch(indices).images)  # [B, C, H, W]
            with torch.no_grad():
                labels = model(images).activations.argmax(dim=1)
            for name, explainer in explainers.items():
                maps = explainer(images, labels)
                areas = [
                    deletion_curve(model, images, labels, maps, insert=insert).mean(dim=1) for insert in (False, True)
                ]
                sums[name] += torch.stack([area.double().sum() for area in areas])
            if progress is not None:
                progress(min((done + 1) * BATCH, len(chosen)), len(chosen))
    finally:
        model.train(was_training)
    if not all(total.isfinite().all() for total in sums.values()):
        raise ConfigError(f"model: expected finite activations, got NaN or infinity for images of '{data.name}'")
    rows = [ProtocolRow(name, len(chosen), tuple((total / len(chosen)).tolist())) for name, total in sums.items()]
    question = "Does the class fade when the pixels that an explanation names are deleted, and appear when inserted?"
    columns = ("deletion (low is good)", "insertion (high is good)")
    return ProtocolResult("faithfulness", question, data.name, data.origin, columns, tuple(rows))


def _supported(model: ImageModel) -> list[str]:
    names = []
    for name in SALIENCY.names():
        if name == "routing" and not routing_layers(model):
            continue
        try:
            make_explainer(model, name)
        except MissingPackageError as error:
            warnings.warn(f"{name} is left out: {error}", stacklevel=3)
        else:
            names.append(name)
    return names


@PROTOCOLS.register("faithfulness")
def _faithfulness(run: TrainedRun, progress: Progress) -> ProtocolResult:
    return by_deletion(run.load_model(), run.load_data("test"), progress=progress)
