"""The network that is played with, a CNN to compare it with, and some images; trained once where there is none."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import torch
from fastapi import Depends, Request
from platformdirs import user_cache_path
from torch import Tensor

from torchcaps import train
from torchcaps.data import ImageData, load_data, to_float
from torchcaps.data.transforms import shift
from torchcaps.errors import ConfigError
from torchcaps.models import ImageModel, create_model, list_pretrained, pretrained_card
from torchcaps.playground.picture import Source, fit
from torchcaps.train import Recipe, Run, load_recipe

SAMPLES = 200
APART = 2
# The largest batch that a panel asks for.
WARM = 31
# Enough for 98 % of the digits: it is there to compare with, not to win.
CNN = ("model.name=cnn_small", "model.options={}", "trainer.epochs=6")
# The weights that are played with where no run is named, of a network whose routing has iterations to watch, and those
# of the CNN beside them.
SHIPPED, SHIPPED_CNN = "mnist_dynamic", "mnist_cnn"
# Data sets whose classes the comparison network knows.
DIGITS = ("digits", "mnist")


@dataclass(frozen=True, eq=False)
class Network:
    """What is played with: a model, images that it can be asked about, and perhaps a CNN beside it.

    `samples` are taken class by class in turn, so that for J classes number n shows class n mod J. `ink` says that the
    images are bright strokes on a dark ground, which a page may show as ink on paper.
    """

    name: str
    about: str
    model: ImageModel
    samples: ImageData
    cnn: ImageModel | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return self.samples.class_names

    @cached_property
    def ink(self) -> bool:
        """Whether the images are strokes on a ground without light."""
        images = self.samples.images
        edge = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]], dim=-1)
        return images.shape[1] == 1 and float(edge.float().mean()) < 25

    @cached_property
    def pose_size(self) -> int:
        """How many numbers the pose of a class has."""
        with torch.inference_mode():
            return self.model(self.image(Source(sample=0))).poses.shape[-1]

    def image(self, source: Source) -> Tensor:
        """What the network is to look at, [1, C, H, W] in [0, 1]."""
        if source.drawing is not None:
            return fit(source.drawing.tensor(), self.model.image_shape)
        first = self._sample(source.sample or 0)  # [1, C, H, W]
        if source.second is None:
            return first
        # Apart by a few pixels, as the digits of MultiMNIST lie, and as bright as paper lets two strokes be.
        pair = torch.cat([first, self._sample(source.second)])  # [2, C, H, W]
        apart = torch.tensor([-APART, APART])  # [2]
        return shift(pair, apart, apart).sum(dim=0, keepdim=True).clamp(max=1)  # [1, C, H, W]

    def _sample(self, number: int) -> Tensor:
        if number >= len(self.samples):
            raise ConfigError(f"sample: expected a number from 0 to {len(self.samples) - 1}, got {number}")
        return to_float(self.samples.images[number : number + 1])  # [1, C, H, W]

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Answer once, so that the first question is not a slow one."""
        _ = self.pose_size
        images = self.image(Source(sample=0)).expand(WARM, -1, -1, -1)
        for model in (self.model, self.cnn):
            if model is not None:
                capsules = model(images)
                if model.decoder is not None:
                    model.decode(capsules)


def in_turn(data: ImageData, count: int = SAMPLES) -> ImageData:
    """The first images of each class, one class after the other, as long as every class has one; in memory.

    Where two things are in an image, it counts for the class of the first.
    """
    # Enough to find some of every class among, where data are drawn or read as they are asked for.
    some = data.spread(20 * count)
    labels = some.labels if some.labels.dim() == 1 else some.labels[:, 0]  # [N]
    places = [(labels == label).nonzero().flatten() for label in range(data.num_classes)]  # J times [n]
    filled = [at for at in places if len(at)]
    rounds = min(count // max(len(filled), 1), *(len(at) for at in filled)) if filled else 0
    order = [int(at[turn]) for turn in range(rounds) for at in filled]
    chosen = torch.tensor(order or range(min(len(some), count)), dtype=torch.int64)  # [n]
    images = some.batch(chosen).images  # [n, C, H, W]
    return ImageData(data.name, data.split, images, labels[chosen], data.class_names, data.origin)


def open_network(
    run: str | Path | None = None, *, progress: bool = False, say: Callable[[str], None] = print
) -> Network:
    """The network of a run; or the shipped one; or the small one on the digits, trained now if it never was."""
    if run is not None:
        opened = Run.open(run)
        model, data = opened.load_model(), opened.load_data("test")
        knows = opened.recipe.data.name in DIGITS and model.image_shape == (1, 28, 28)
        cnn = _cnn(progress, say) if knows else None
        return Network(opened.path.resolve().name, _about(opened), model, in_turn(data), cnn)
    network = shipped_network()
    if network is None:
        opened = _kept(load_recipe("digits"), progress, say)
        digits = in_turn(load_data("digits", "test"))
        network = Network("capsnet_small", _about(opened), opened.load_model(), digits)
    return replace(network, cnn=_cnn(progress, say))


def shipped_network() -> Network | None:
    """The network for MNIST whose weights come with torchcaps, with the embedded digits; None where it cannot paint."""
    if SHIPPED not in list_pretrained():
        return None
    card = pretrained_card(SHIPPED)
    model = create_model(card.model, pretrained=card.name)
    if model.decoder is None:
        return None
    return Network(card.name, card.about, model, in_turn(load_data("digits", "test")))


def _cnn(progress: bool, say: Callable[[str], None]) -> ImageModel:
    """The CNN for digits that comes with torchcaps, or else one that is trained on the embedded ones."""
    if SHIPPED_CNN in list_pretrained():
        return create_model(pretrained_card(SHIPPED_CNN).model, pretrained=SHIPPED_CNN)
    return _kept(load_recipe("digits", CNN), progress, say).load_model()


def _about(run: Run) -> str:
    results = run.results
    tested = f", {results['test_accuracy']:.1%} of the test images right" if "test_accuracy" in results else ""
    return f"{run.recipe.model.name} on {run.recipe.data.name}{tested}"


def _kept(recipe: Recipe, progress: bool, say: Callable[[str], None]) -> Run:
    """The run of this very recipe in the user's cache: finished, gone on with, or begun."""
    stamp = hashlib.sha256(recipe.to_toml().encode()).hexdigest()[:8]
    folder = user_cache_path("torchcaps") / "playground" / f"{recipe.model.name}-{stamp}"
    if (folder / "run.json").exists():
        run = Run.open(folder)
        if run.status == "finished" and run.weights.exists():
            return run
        say(f"going on with the training of {recipe.model.name} in {folder}")
        run = train.resume(folder, progress=progress)
    else:
        # Killed before its first word: there is nothing to go on with.
        shutil.rmtree(folder, ignore_errors=True)
        say(f"training {recipe.model.name} on {recipe.data.name} once; it is kept in {folder}")
        run = train.start(recipe, folder, progress=progress)
    if run.status != "finished":
        raise KeyboardInterrupt
    return run


def _playing(request: Request) -> Network:
    return request.app.state.network


Playing = Annotated[Network, Depends(_playing)]
