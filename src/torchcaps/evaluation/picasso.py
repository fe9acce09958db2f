"""The protocol `picasso`: whether parts in wrong places count as a whole."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchcaps.data import ImageDataset, InMemoryDataset, load_data
from torchcaps.data.counter_rng import uniforms
from torchcaps.errors import ConfigError
from torchcaps.evaluation.protocols import PROTOCOLS, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.evaluation.rejection import detection, novelty_of_data
from torchcaps.models import ImageModel
from torchcaps.types import Progress

_SEED = 1907


def scramble(images: Tensor, grid: int, seed: int = _SEED) -> Tensor:
    """Cut each image into grid x grid patches and exchange their places.

    No patch stays where it was. Rows and columns beyond a multiple of `grid` stay as they are.

    Args:
        images: Images of any type.
        grid: Number of patches along each side.
        seed: Seed of the new places.

    Shape:
        images: [N, C, H, W]; returns the same shape.

    Returns:
        The scrambled images.

    Raises:
        ConfigError: If there are fewer than two patches along a side, or more than pixels.

    Example:
        >>> scramble(torch.arange(4).view(1, 1, 2, 2), 2).flatten().sort().values.tolist()
        [0, 1, 2, 3]
    """
    height, width = images.shape[-2] // grid if grid else 0, images.shape[-1] // grid if grid else 0
    if grid < 2 or not (height and width):
        raise ConfigError(f"grid: expected 2 to {min(images.shape[-2:])} patches along a side, got {grid}")
    count = grid * grid
    random = uniforms(seed, np.arange(len(images)), count)  # [N, count]
    # A random cycle through all patches moves each of them.
    cycle = torch.from_numpy(random).argsort(dim=1)  # [N, count]
    source = torch.empty_like(cycle).scatter_(1, cycle, cycle.roll(1, dims=1))  # [N, count]
    inner = images[..., : grid * height, : grid * width]  # [N, C, grid h, grid w]
    patches = inner.unflatten(-2, (grid, height)).unflatten(-1, (grid, width))  # [N, C, grid, h, grid, w]
    flat = patches.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # [N, count, C, h, w]
    moved = flat[torch.arange(len(images))[:, None], source]  # [N, count, C, h, w]
    result = images.clone()
    placed = moved.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5)  # [N, C, grid, h, grid, w]
    result[..., : grid * height, : grid * width] = placed.reshape(inner.shape)
    return result


def scrambled(data: ImageDataset, grid: int = 2) -> ImageDataset:
    """Return a data set of the same images with parts in wrong places: of drawn faces the parts, else patches.

    Args:
        data: Whole images.
        grid: Number of patches along each side.

    Returns:
        The scrambled images with the same labels.

    Raises:
        ConfigError: If the data are no images.

    Example:
        >>> from torchcaps import load_data
        >>> len(scrambled(load_data("digits", "test")))
        1000
    """
    if data.name == "faces":
        return load_data("faces", data.split, scrambled=True)
    if len(data.image_shape) != 3:
        raise ConfigError(f"data: expected images, got {data.image_shape} of '{data.name}'")
    origin = f"{data.origin}, {grid * grid} patches in wrong places"
    images = scramble(data.images, grid)
    return InMemoryDataset(data.name, data.split, images, data.labels, data.class_names, origin, dict(data.meta))


def by_parts(
    model: ImageModel, whole: ImageDataset, parts: ImageDataset, *, progress: Progress | None = None
) -> ProtocolResult:
    """Measure how many scrambled images count as wholes, where 95 % of the whole ones do.

    Args:
        model: The network, trained on whole images only.
        whole: Whole test images.
        parts: The same images with parts in wrong places.
        progress: Called with (done, total) after each batch.

    Returns:
        For each score of `novelty`: area under the ROC curve, and share of false wholes at 95 % true wholes.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(8))
        >>> [row.name for row in by_parts(create_model("cnn_small"), few, scrambled(few)).rows]
        ['activation', 'energy']
    """
    known = novelty_of_data(model, whole, progress=progress)
    new = novelty_of_data(model, parts, progress=progress)
    rows = tuple(ProtocolRow(name, len(parts), detection(known[name], new[name])) for name in sorted(known))
    question = "Do parts in wrong places count as a whole?"
    return ProtocolResult("picasso", question, whole.name, parts.origin, ("AUROC", "false wholes"), rows)


@PROTOCOLS.register("picasso")
def _picasso(run: TrainedRun, progress: Progress, *, grid: int = 2) -> ProtocolResult:
    whole = run.load_data("test")
    return by_parts(run.load_model(), whole, scrambled(whole, grid), progress=progress)
