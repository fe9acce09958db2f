"""The panel Routing: coupling, votes and poses by iteration, for one or two routers on the same votes."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from torch import Tensor

from torchcaps.diagnostics.measures import coupling_entropy, logit_change, plane_of
from torchcaps.errors import ConfigError
from torchcaps.models import Grid
from torchcaps.nn import ROUTERS, make_router
from torchcaps.playground.catalog import CatalogDep, NetworkDep
from torchcaps.playground.images import EncodedImages, ImageSource, RequestModel, encode_images
from torchcaps.playground.measures import changed_by_routing, receptive_fields, trace_uniform
from torchcaps.playground.network import PlaygroundNetwork
from torchcaps.types import Capsules, Trace

router = APIRouter()

OWN, OWN_UNIFORM = "own", "own_uniform"
# These routers compute their coupling with learned matrices.
NEEDS_TRAINING = ("self_routing",)
MAX_ITERS = 10


class RoutingLimits(BaseModel):
    """Limits of the panel's requests."""

    max_iters: int


LIMITS = RoutingLimits(max_iters=MAX_ITERS)


class TraceRequest(RequestModel):
    """An image and the routers to trace.

    Attributes:
        source: The image.
        routers: One or two router names; "own" is the network's router, "own_uniform" the same with uniform coupling.
        iters: Iterations of the other routers.
        parent: Class whose votes are returned; the predicted class by default.
    """

    source: ImageSource
    routers: list[Annotated[str, Field(max_length=40)]] = Field(default=[OWN], min_length=1, max_length=2)
    iters: int = Field(default=3, ge=1, le=MAX_ITERS, strict=True)
    parent: Annotated[int, Field(ge=0, le=10_000, strict=True)] | None = None


class RouterTrace(BaseModel):
    """One routing of the votes in R iterations.

    Attributes:
        router: Name of the router.
        activations: Length of each class capsule, [R, J].
        shares: Coupling to each class at each grid position, the mean over the capsule types there weighted by their
            activations, [R, J, H*W].
        relevance: Coupling times activation of each grid position for the chosen class, summed over the capsule types
            there, [R, H*W].
        coupling: Coupling of each child to the chosen class, [R, I].
        path: Pose of the chosen class in the plane of the votes, [R, 2].
        entropy: Entropy of the coupling, [R].
        change: Change of the logits since the previous iteration, [R].
    """

    router: str
    activations: list[list[float]]
    shares: list[list[list[float]]]
    relevance: list[list[float]]
    coupling: list[list[float]]
    path: list[list[float]]
    entropy: list[float]
    change: list[float]


class TraceResponse(BaseModel):
    """The children, their votes for one class, and the trace of each router.

    Children are numbered by position and then by type.

    Attributes:
        image: The input of the network.
        parent: The chosen class.
        rows: Rows of the grid.
        columns: Columns of the grid.
        types: Capsule types at each position.
        places: Centre of each position's receptive field, (row, column) from 0 to 1, [H*W, 2].
        fields: Top, left, bottom and right of each position's receptive field, from 0 to 1, [H*W, 4]; may be empty.
        present: Activation of each child, [I].
        votes: Votes for the chosen class in the plane of their two principal directions, [I, 2].
        explained: Fraction of the votes' squared length that lies in the plane.
        traces: One trace for each router.
    """

    image: EncodedImages
    parent: int
    rows: int
    columns: int
    types: int
    places: list[list[float]]
    fields: list[list[float]]
    present: list[float]
    votes: list[list[float]]
    explained: float
    traces: list[RouterTrace]


class EffectExample(BaseModel):
    """A network and one of its samples whose prediction changes with uniform coupling."""

    network: str
    sample: int
    share: float


class EffectResponse(BaseModel):
    """What routing changes in this network.

    Attributes:
        images: Number of samples that were measured.
        share: Share of them whose prediction changes if a routing layer couples uniformly (`changed`).
        samples: Numbers of these samples.
        example: The network of the catalog where routing changes most, with a sample; None if this is the one.
    """

    images: int
    share: float
    samples: list[int]
    example: EffectExample | None


class RoutersResponse(BaseModel):
    """Names of the routers that need no training, and the name of the network's router."""

    routers: list[str]
    own: str


def unavailable_reason(network: PlaygroundNetwork) -> str | None:
    """Reason why the panel cannot show this network; None if it can."""
    if network.model.class_router is None:
        return "This network has no routing: its classes have scores and no capsules."
    return None


@router.post("/routers")
def list_routers(network: NetworkDep) -> RoutersResponse:
    """The routers that can be compared."""
    return RoutersResponse(routers=comparable_routers(), own=getattr(network.model.class_router, "algorithm", OWN))


@router.post("/effect")
def effect(network: NetworkDep, catalog: CatalogDep) -> EffectResponse:
    """How many predictions change without routing, and a network where they do."""
    if network.model.class_router is None:
        raise ConfigError(f"network: expected one with routing, got {network.name} without")
    changed = changed_by_routing(network)  # [N]
    share = float(changed.float().mean())
    found = None
    for name in catalog.names:
        other = catalog.open(name)
        if other is network or other.labels != 1 or other.model.class_router is None:
            continue
        others = changed_by_routing(other)  # [N]
        if float(others.float().mean()) > max(share, found.share if found else 0.0):
            found = EffectExample(network=name, sample=int(others.nonzero()[0]), share=float(others.float().mean()))
    return EffectResponse(images=len(changed), share=share, samples=changed.nonzero().flatten().tolist(), example=found)


def comparable_routers() -> list[str]:
    """Names of the routers whose initial state is deterministic and needs no training.

    Returns:
        Keys of `nn.ROUTERS`.

    Example:
        >>> "dynamic" in comparable_routers(), "self_routing" in comparable_routers()
        (True, False)
    """
    return [name for name in ROUTERS if name not in NEEDS_TRAINING]


@router.post("/trace")
def trace(body: TraceRequest, network: NetworkDep) -> TraceResponse:
    """Every iteration of one or two routings of the same votes."""
    fields = receptive_fields(network)
    with torch.inference_mode():
        image = network.image(body.source)  # [1, C, H, W]
        own = network.model.trace(image)
        children = TracedChildren(network, image, own)
        parent = int(own.activations[-1, 0].argmax()) if body.parent is None else body.parent
        if parent >= network.model.num_classes:
            raise ConfigError(
                f"parent: expected a class number from 0 to {network.model.num_classes - 1}, got {parent}"
            )
        named = {OWN: lambda: own, OWN_UNIFORM: lambda: trace_uniform(network, image)}
        traces = [named[name]() if name in named else children.route(name, body.iters) for name in body.routers]
        plane, explained = plane_of(own.votes[0, :, parent], own.poses[-1, 0, parent])  # [D, 2]
        rows, columns, types = children.grid
        return TraceResponse(
            image=encode_images(image),
            parent=parent,
            rows=rows,
            columns=columns,
            types=types,
            places=children.places,
            fields=fields if len(fields) == rows * columns else [],
            present=children.capsules.activations[0].tolist(),
            votes=(own.votes[0, :, parent] @ plane).tolist(),
            explained=explained,
            traces=[
                children.describe(name, one, parent, plane) for name, one in zip(body.routers, traces, strict=True)
            ],
        )


class TracedChildren:
    """The children whose votes a trace contains.

    If `features` are other capsules than those of the votes, the children have the activation 1 and one position.

    Args:
        network: The network.
        image: Its input.
        own: Trace of the network's own routing.

    Shape:
        image: [1, C, H, W].
    """

    def __init__(self, network: PlaygroundNetwork, image: Tensor, own: Trace) -> None:
        self.model = network.model
        self.own = own
        capsules = network.model.features(image)
        count = own.votes.shape[1]
        if capsules.activations[0].numel() == count:
            rows, columns, types = capsules.activations.shape[1:] if capsules.activations.dim() == 4 else (1, 1, count)
            self.grid = (rows, columns, types)
            self.capsules = capsules.flatten()
        else:
            self.grid = (1, 1, count)
            self.capsules = Capsules(own.votes.new_zeros(1, count, 1), own.votes.new_ones(1, count))

    @cached_property
    def places(self) -> list[list[float]]:
        """Centre of each position's receptive field in the image, (row, column) from 0 to 1."""
        rows, columns, _ = self.grid
        grid = self.model.grid()
        if grid is None or (len(grid.rows), len(grid.columns)) != (rows, columns):
            grid = Grid.even(rows, columns)
        return [[row, column] for row in grid.rows for column in grid.columns]

    def route(self, name: str, iters: int) -> Trace:
        """Route the same votes with another router in its initial state.

        Args:
            name: Name of the router.
            iters: Number of iterations, if the router has any.

        Returns:
            The trace of that routing.

        Raises:
            ConfigError: If the router needs training.
        """
        if name not in comparable_routers():
            # Raises UnknownNameError with a suggestion.
            _ = ROUTERS[name]
            raise ConfigError(f"routers: expected a router that needs no training, got '{name}'")
        count, parents, size = self.own.votes.shape[1:]
        other = make_router(name)
        if hasattr(other, "iters"):
            other = make_router({"name": name, "iters": iters})
        other.prepare(count, parents, self.capsules.poses.shape[-1], size)
        bias = self.model.class_bias if other.takes_bias else None
        return other.trace(self.own.votes, self.capsules, bias=bias)

    def describe(self, name: str, trace: Trace, parent: int, plane: Tensor) -> RouterTrace:
        """Summarise a trace for the page.

        Args:
            name: Name of the router.
            trace: Its trace.
            parent: The chosen class.
            plane: The plane of the votes.

        Shape:
            plane: [D, 2].

        Returns:
            The trace as lists of numbers.
        """
        coupling = trace.coupling[:, 0]  # [R, I, J]
        rows, columns, types = self.grid
        weight = self.capsules.activations[0].reshape(rows * columns, types)  # [H*W, T]
        by_place = coupling.unflatten(1, (rows * columns, types))  # [R, H*W, T, J]
        total = torch.einsum("pt,rptj->rjp", weight, by_place)  # [R, J, H*W]
        shares = total / weight.sum(dim=1).clamp(min=1e-6)  # [R, J, H*W]
        return RouterTrace(
            router=name,
            activations=trace.activations[:, 0].tolist(),
            shares=shares.tolist(),
            relevance=total[:, parent].tolist(),
            coupling=coupling[..., parent].tolist(),
            path=(trace.poses[:, 0, parent] @ plane).tolist(),
            # The normalised entropy is undefined for a single class.
            entropy=coupling_entropy(trace.coupling).nan_to_num().tolist(),
            change=[0.0, *logit_change(trace.logits).tolist()],
        )
