"""The network of the playground: a capsule network, a CNN for comparison, and sample images."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from platformdirs import user_cache_path
from torch import Tensor
from torch.nn import functional as F

from torchcaps import train
from torchcaps.data import ImageDataset, InMemoryDataset, load_data, to_float
from torchcaps.data.transforms import shift
from torchcaps.errors import ConfigError
from torchcaps.evaluation.pretrained_data import download_weights, pretrained_data
from torchcaps.models import ImageModel, ModelCard, create_model, list_pretrained, pretrained_card
from torchcaps.playground.images import (
    FILL,
    PAIR_FILL,
    DrawingSource,
    SampleSource,
    UploadSource,
    fit_drawing,
)
from torchcaps.train import Recipe, Run, load_recipe

NUM_SAMPLES = 200
# Pixels by which each of two overlaid images is shifted, as in MultiMNIST.
OVERLAY_SHIFT = 2
# The largest batch of any panel.
WARM_UP_BATCH = 31
# Trained for the comparison only: 98 % of the test digits are enough.
CNN_OVERRIDES = ("model.name=cnn_small", "model.options={}", "trainer.epochs=6")
# Pretrained weights that are used without a run: a network with several routing iterations, and a CNN.
PRETRAINED, PRETRAINED_CNN = "mnist_dynamic", "mnist_cnn"
# Data sets with the classes of the CNN.
DIGIT_DATA = ("digits", "mnist")
# Data sets whose images are made of the bundled digits: their networks need no download.
BUNDLED_DATA = (*DIGIT_DATA, "multimnist")


@dataclass(frozen=True, eq=False)
class PlaygroundNetwork:
    """The network of the playground, its sample images and a CNN for comparison.

    Attributes:
        name: Name of the network or of its run.
        about: One line about model, data and accuracy.
        model: The capsule network.
        samples: Images to choose from; for J classes, image n shows class n mod J.
        cnn: A CNN with the same classes; None if there is none.
        labels: Classes per image. A network for two names the two longest capsules.
        limits: Known limitations, in sentences.
    """

    name: str
    about: str
    model: ImageModel
    samples: ImageDataset
    cnn: ImageModel | None = None
    labels: int = 1
    limits: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.samples.class_names

    @cached_property
    def has_ink(self) -> bool:
        """Whether the images are bright strokes on a dark background, which the page shows as ink on paper."""
        images = self.samples.images
        edge = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]], dim=-1)
        return images.shape[1] == 1 and float(edge.float().mean()) < 25

    @cached_property
    def pose_size(self) -> int:
        """Number of dimensions of a class capsule's pose."""
        with torch.inference_mode():
            return self.model(self.image(SampleSource(sample=0))).poses.shape[-1]

    def image(self, source: SampleSource | DrawingSource | UploadSource) -> Tensor:
        """Load the input of the network.

        Args:
            source: A sample, two overlaid samples, a drawing or an image of the user.

        Shape:
            returns [1, C, H, W], floats in [0, 1].

        Returns:
            The image.

        Raises:
            ConfigError: If a sample number is too large.
        """
        fill = FILL if self.labels == 1 else PAIR_FILL
        if isinstance(source, DrawingSource):
            return fit_drawing(source.drawing.tensor(), self.model.image_shape, fill)
        if isinstance(source, UploadSource):
            if self.has_ink:
                return fit_drawing(source.upload.ink(), self.model.image_shape, fill)
            return source.upload.fitted(self.model.image_shape)
        first = self._sample(source.sample)  # [1, C, H, W]
        if source.second is None:
            return first
        pair = torch.cat([first, self._sample(source.second)])  # [2, C, H, W]
        offset = torch.tensor([-OVERLAY_SHIFT, OVERLAY_SHIFT])  # [2]
        return shift(pair, offset, offset).sum(dim=0, keepdim=True).clamp(max=1)  # [1, C, H, W]

    def _sample(self, number: int) -> Tensor:
        if number >= len(self.samples):
            raise ConfigError(f"sample: expected a number from 0 to {len(self.samples) - 1}, got {number}")
        return self.padded(self.samples.images[number : number + 1])  # [1, C, H, W]

    def padded(self, images: Tensor) -> Tensor:
        """Place samples in the middle of images of the network's size.

        Args:
            images: Samples, bytes.

        Shape:
            images: [N, C, h, w]; returns [N, C, H, W], floats in [0, 1].

        Returns:
            The images.
        """
        _, height, width = self.model.image_shape
        down, right = height - images.shape[-2], width - images.shape[-1]
        borders = (right // 2, right - right // 2, down // 2, down - down // 2)
        return F.pad(to_float(images), borders)  # [N, C, H, W]

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Run both networks once, so that the first request is not slower than the next."""
        _ = self.pose_size
        images = self.image(SampleSource(sample=0)).expand(WARM_UP_BATCH, -1, -1, -1)
        for model in (self.model, self.cnn):
            if model is not None:
                capsules = model(images)
                if model.decoder is not None:
                    model.decode(capsules)


def interleave_classes(data: ImageDataset, count: int = NUM_SAMPLES) -> ImageDataset:
    """Select the first images of each class, one class after the other, as long as every class has one.

    An image with two labels counts for its first label.

    Args:
        data: The data to select from.
        count: Maximum number of images.

    Returns:
        The selected images, in memory.
    """
    # Large enough to contain every class; generated and sharded data are not read completely.
    some = data.evenly_spaced(20 * count)
    labels = some.labels if some.labels.dim() == 1 else some.labels[:, 0]  # [N]
    indices = [(labels == label).nonzero().flatten() for label in range(data.num_classes)]  # J times [n]
    filled = [index for index in indices if len(index)]
    rounds = min(count // max(len(filled), 1), *(len(index) for index in filled)) if filled else 0
    order = [int(index[turn]) for turn in range(rounds) for index in filled]
    chosen = torch.tensor(order or range(min(len(some), count)), dtype=torch.int64)  # [n]
    images = some.batch(chosen).images  # [n, C, H, W]
    return InMemoryDataset(data.name, data.split, images, labels[chosen], data.class_names, data.origin)


def open_network(
    run: str | Path | None = None,
    *,
    pretrained: str | None = None,
    progress: bool = False,
    say: Callable[[str], None] = print,
) -> PlaygroundNetwork:
    """Open a run or pretrained weights, by default the pretrained network for digits.

    Networks whose weights are not part of the installation are trained once and cached.

    Args:
        run: Folder of a run.
        pretrained: Name of pretrained weights, see `list_pretrained`.
        progress: Whether training shows a progress bar.
        say: Receives one line before a training starts.

    Returns:
        The network in evaluation mode, with sample images and, for digits, a CNN.

    Raises:
        ConfigError: If both a run and pretrained weights are given.

    Example:
        >>> open_network("runs/NAME").about  # doctest: +SKIP
    """
    if run is not None and pretrained is not None:
        raise ConfigError(f"run: expected a run or pretrained weights, got both ('{run}', '{pretrained}')")
    if run is not None:
        opened = Run.open(run)
        model, data = opened.load_model(), opened.load_data("test")
        is_digits = opened.recipe.data.name in DIGIT_DATA and model.image_shape == (1, 28, 28)
        cnn = _digit_cnn(progress, say) if is_digits else None
        return PlaygroundNetwork(opened.path.resolve().name, _about(opened), model, interleave_classes(data), cnn)
    if pretrained is not None:
        return pretrained_network(pretrained)
    if not has_default():
        opened = _cached_run(load_recipe("digits"), progress, say)
        digits = interleave_classes(load_data("digits", "test"))
        network = PlaygroundNetwork("capsnet_small", _about(opened), opened.load_model(), digits)
    else:
        network = pretrained_network(PRETRAINED)
    return replace(network, cnn=_digit_cnn(progress, say))


def has_default() -> bool:
    """Whether the pretrained network for digits is installed, with a decoder."""
    if PRETRAINED not in list_pretrained():
        return False
    card = pretrained_card(PRETRAINED)
    return create_model(card.model, card.image_shape, card.num_classes, **card.options).decoder is not None


def is_playable(card: ModelCard) -> bool:
    """Whether pretrained weights can be shown without a download: capsules, and bundled images."""
    return card.weights.is_file() and card.data["name"] in BUNDLED_DATA and not card.model.startswith("cnn")


def pretrained_network(name: str) -> PlaygroundNetwork:
    """Open pretrained weights with test images of their data set.

    The images of networks for digits are the bundled ones. Those for pairs of digits get single digits, which the page
    overlays.

    Args:
        name: Name of the weights.

    Returns:
        The network; for single digits with the pretrained CNN, if it is installed.

    Raises:
        DataError: If the weights or the data set are neither bundled nor available.
        UnknownNameError: If there are no weights of this name.

    Example:
        >>> pretrained_network("multimnist").labels
        2
    """
    card = pretrained_card(name)
    download_weights(name)
    model = create_model(card.model, pretrained=card.name)
    digits = card.data["name"] in BUNDLED_DATA
    data = load_data("digits", "test") if digits else pretrained_data(card)
    has_cnn = digits and card.num_labels == 1 and PRETRAINED_CNN in list_pretrained() and name != PRETRAINED_CNN
    cnn = _digit_cnn(False, print) if has_cnn else None
    samples = interleave_classes(data)
    return PlaygroundNetwork(card.name, card.about, model, samples, cnn, card.num_labels, card.limits)


def _digit_cnn(progress: bool, say: Callable[[str], None]) -> ImageModel:
    """The pretrained CNN for digits, or one trained on the embedded digits."""
    if PRETRAINED_CNN in list_pretrained():
        return create_model(pretrained_card(PRETRAINED_CNN).model, pretrained=PRETRAINED_CNN)
    return _cached_run(load_recipe("digits", CNN_OVERRIDES), progress, say).load_model()


def _about(run: Run) -> str:
    results = run.results
    accuracy = f", test accuracy {results['test_accuracy']:.1%}" if "test_accuracy" in results else ""
    return f"{run.recipe.model.name} on {run.recipe.data.name}{accuracy}"


def _cached_run(recipe: Recipe, progress: bool, say: Callable[[str], None]) -> Run:
    """The finished run of a recipe in the user's cache; trained or resumed if it is not there."""
    stamp = hashlib.sha256(recipe.to_toml().encode()).hexdigest()[:8]
    folder = user_cache_path("torchcaps") / "playground" / f"{recipe.model.name}-{stamp}"
    if (folder / "run.json").exists():
        run = Run.open(folder)
        if run.status == "finished" and run.weights.exists():
            return run
        say(f"resuming the training of {recipe.model.name} in {folder}")
        run = train.resume(folder, progress=progress)
    else:
        # Stopped before its record was written: nothing to resume.
        shutil.rmtree(folder, ignore_errors=True)
        say(f"training {recipe.model.name} on {recipe.data.name} once; the result is cached in {folder}")
        run = train.fit(recipe, folder, progress=progress)
    if run.status != "finished":
        raise KeyboardInterrupt
    return run
