"""The panel Routing: who listens to whom, iteration by iteration; and two routers on the same votes."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.models.cnn import CNN
from torchcaps.nn import ROUTERS, make_router
from torchcaps.ops.diagnostics import coupling_entropy, logit_change, plane_of
from torchcaps.playground.network import Network, Playing
from torchcaps.playground.picture import Images, Request, Source, encode
from torchcaps.types import Capsules, Trace

router = APIRouter()

OWN = "own"
# Decides by matrices that only training can give it.
TRAINED = ("self_routing",)


class Ask(Request):
    """A picture, one or two routers by name ("own" is the network's), and the class whose votes are looked at."""

    source: Source
    routers: list[Annotated[str, Field(max_length=40)]] = Field(default=[OWN], min_length=1, max_length=2)
    iters: int = Field(default=3, ge=1, le=10)
    parent: int | None = Field(default=None, ge=0, le=10_000)


class Way(BaseModel):
    """One routing of the votes: R iterations.

    `shares` [R, J, H*W] is the coupling to each class at each place, the mean over the types there, weighted by their
    activations; `coupling` [R, I] is that of each child to the chosen class, and `path` [R, 2] that class's pose in the
    plane of the votes. `entropy` [R] and `change` [R], since the iteration before, are those of `ops.diagnostics`.
    """

    router: str
    activations: list[list[float]]
    shares: list[list[list[float]]]
    coupling: list[list[float]]
    path: list[list[float]]
    entropy: list[float]
    change: list[float]


class Routed(BaseModel):
    """The children, where they are, their votes for one class in a plane, and how each router treats them.

    The children are numbered place by place, `types` at each of the places, whose centres in the image are from 0 to 1
    (row, column). The plane is that of the two directions in which the votes for the class are largest.
    """

    image: Images
    parent: int
    rows: int
    columns: int
    types: int
    places: list[list[float]]
    present: list[float]
    votes: list[list[float]]
    kept: float
    ways: list[Way]


class Names(BaseModel):
    """The routers that can route votes that are given, without having been trained on them."""

    routers: list[str]
    own: str


def lacking(network: Network) -> str | None:
    """Why there is nothing to see; None where there is."""
    return "This network has no routing: its classes are scores." if isinstance(network.model, CNN) else None


@router.post("/names")
def names(network: Playing) -> Names:
    """Which routers there are to choose from."""
    routing = getattr(getattr(network.model, "head", None), "routing", None)
    return Names(routers=comparable(), own=getattr(routing, "algorithm", OWN))


def comparable() -> list[str]:
    """The names of the routers that start the same each time.

    >>> "dynamic" in comparable(), "self_routing" in comparable()
    (True, False)
    """
    return [name for name in ROUTERS if name not in TRAINED]


@router.post("/trace")
def trace(asked: Ask, network: Playing) -> Routed:
    """Every iteration of one or two routings of the same votes."""
    with torch.inference_mode():
        image = network.image(asked.source)  # [1, C, H, W]
        own = network.model.trace(image)
        seen = Seen(network, image, own)
        parent = int(own.activations[-1, 0].argmax()) if asked.parent is None else asked.parent
        if parent >= network.model.num_classes:
            raise ConfigError(
                f"parent: expected a class number from 0 to {network.model.num_classes - 1}, got {parent}"
            )
        traces = [own if name == OWN else seen.route(name, asked.iters) for name in asked.routers]
        plane, kept = plane_of(own.votes[0, :, parent], own.poses[-1, 0, parent])  # [D, 2]
        rows, columns, types = seen.grid
        return Routed(
            image=encode(image),
            parent=parent,
            rows=rows,
            columns=columns,
            types=types,
            places=seen.places,
            present=seen.children.activations[0].tolist(),
            votes=(own.votes[0, :, parent] @ plane).tolist(),
            kept=kept,
            ways=[seen.way(name, one, parent, plane) for name, one in zip(asked.routers, traces, strict=True)],
        )


class Seen:
    """The children whose votes a trace holds; where a network hides them, they count as present and lie in a row."""

    def __init__(self, network: Network, image: Tensor, own: Trace) -> None:
        self.model = network.model
        self.own = own
        found: Capsules | None = None
        features = getattr(network.model, "features", None)
        if features is not None:
            found = features(image)
        count = own.votes.shape[1]
        if found is not None and found.activations[0].numel() == count:
            rows, columns, types = found.activations.shape[1:] if found.activations.dim() == 4 else (1, 1, count)
            self.grid = (rows, columns, types)
            self.children = found.flatten()
        else:
            self.grid = (1, 1, count)
            self.children = Capsules(own.votes.new_zeros(1, count, 1), own.votes.new_ones(1, count))

    @cached_property
    def places(self) -> list[list[float]]:
        """The centre of each place in the image, (row, column) from 0 to 1."""
        rows, columns, _ = self.grid
        offsets = getattr(getattr(self.model, "head", None), "offsets", None)
        if offsets is not None and len(offsets) == rows * columns:
            return offsets.tolist()
        parts = [getattr(self.model, name, None) for name in ("stem", "primary")]
        convs = [
            (layer.kernel_size[0], layer.stride[0])
            for part in parts
            if part is not None
            for layer in part.modules()
            if isinstance(layer, nn.Conv2d)
        ]
        axes = [ops.receptive_centres(size, convs) for size in self.model.image_shape[1:]]
        if [len(axis) for axis in axes] != [rows, columns]:
            axes = [[(place + 0.5) / count for place in range(count)] for count in (rows, columns)]
        return [[row, column] for row in axes[0] for column in axes[1]]

    def route(self, name: str, iters: int) -> Trace:
        """The same votes through another router, as it is before it has learned anything."""
        if name not in comparable():
            # An unknown name is told what it may have meant.
            _ = ROUTERS[name]
            raise ConfigError(f"routers: expected one that can route without training, got '{name}'")
        count, parents, size = self.own.votes.shape[1:]
        other = make_router(name)
        if hasattr(other, "iters"):
            other = make_router({"name": name, "iters": iters})
        other.prepare(count, parents, self.children.poses.shape[-1], size)
        bias = getattr(getattr(self.model, "head", None), "bias", None) if other.takes_bias else None
        return other.trace(self.own.votes, self.children, bias=bias)

    def way(self, name: str, trace: Trace, parent: int, plane: Tensor) -> Way:
        """What the page shows of a trace."""
        coupling = trace.coupling[:, 0]  # [R, I, J]
        rows, columns, types = self.grid
        weight = self.children.activations[0].reshape(rows * columns, types)  # [H*W, T]
        by_place = coupling.unflatten(1, (rows * columns, types))  # [R, H*W, T, J]
        total = torch.einsum("pt,rptj->rjp", weight, by_place)  # [R, J, H*W]
        shares = total / weight.sum(dim=1).clamp(min=1e-6)  # [R, J, H*W]
        return Way(
            router=name,
            activations=trace.activations[:, 0].tolist(),
            shares=shares.tolist(),
            coupling=coupling[..., parent].tolist(),
            path=(trace.poses[:, 0, parent] @ plane).tolist(),
            # With a single class there is nothing to be undecided about.
            entropy=coupling_entropy(trace.coupling).nan_to_num().tolist(),
            change=[0.0, *logit_change(trace.logits).tolist()],
        )
