"""Grids of one and three axes: every router and backend, against planes and against the reference."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import ROUTERS, CapsConv1d, CapsConv2d, CapsConv3d, ClassCaps, Router
from torchcaps.nn.conv import CAPS_CONVS, CapsConv
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

every_router = pytest.mark.parametrize("name", sorted(ROUTERS))


def grid(*sides: int, size: int = 16, batch: int = 2) -> Capsules:
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(batch, *sides, 2, size, generator=generator)
    return Capsules(ops.squash(poses), torch.rand(batch, *sides, 2, generator=generator))


def layers(router: Router | str) -> list[tuple[CapsConv | ClassCaps, tuple[int, ...]]]:
    """Layers over a signal and over volumes, each with the sides of a grid of children."""
    torch.manual_seed(0)
    options: list[dict[str, Any]] = [{"routing": copy.deepcopy(router)} for _ in range(6)]
    return [
        (CapsConv1d(2, 3, 3, 2, **options[0]), (9,)),
        (CapsConv1d(2, 3, 3, competition="local", dims=(16, 5), pose="vector", **options[1]), (7,)),
        (ClassCaps(2, 3, centres=([0.1, 0.4, 0.6, 0.9],), **options[2]), (4,)),
        (CapsConv3d(2, 3, (2, 1, 2), **options[3]), (3, 2, 3)),
        (ClassCaps(2, 3, centres=([0.2, 0.8], [0.5], [0.1, 0.9]), **options[4]), (2, 1, 2)),
        (ClassCaps(2, 3, **options[5]), (2, 3, 2)),
    ]


@every_router
@pytest.mark.parametrize(
    ("backend", "competition"),
    [("auto", "local"), ("auto", "positions"), ("recompute", "global"), ("reference", "global")],
)
def test_signal_is_a_plane_of_one_column(name: str, backend: str, competition: str) -> None:
    torch.manual_seed(0)
    kind: dict[str, Any] = {"competition": competition, "backend": backend}
    signal = CapsConv1d(2, 3, 3, 2, routing=name, **kind).double()
    plane = CapsConv2d(2, 3, (3, 1), 2, routing=name, **kind).double()
    plane.load_state_dict(signal.state_dict())
    children = Capsules(*(part.double() for part in grid(8)))
    out = signal(children)
    expected = plane(Capsules(*(part.unsqueeze(2) for part in children)))
    assert out.poses.shape == (2, 3, 3, 16)
    for ours, theirs in zip(out, expected, strict=True):
        torch.testing.assert_close(ours, theirs.squeeze(2), rtol=1e-9, atol=1e-12)


@every_router
def test_volume_of_one_layer_is_a_plane(name: str) -> None:
    torch.manual_seed(0)
    volume, plane = CapsConv3d(2, 3, (1, 2, 3), routing=name).double(), CapsConv2d(2, 3, (2, 3), routing=name).double()
    plane.load_state_dict(volume.state_dict())
    children = Capsules(*(part.double() for part in grid(4, 4)))
    out = volume(Capsules(*(part.unsqueeze(1) for part in children)))
    for ours, theirs in zip(out, plane(children), strict=True):
        torch.testing.assert_close(ours.squeeze(1), theirs, rtol=1e-9, atol=1e-12)


@every_router
def test_kernels_match_the_reference(name: str) -> None:
    made = layers(name)
    # A volume has few votes here, for which `auto` takes the reference.
    for (layer, sides), backend in ((made[0], "auto"), (made[2], "auto"), (made[3], "recompute")):
        children = grid(*sides)
        window = layer.window(children)
        parameters = dict(layer.routing.named_parameters())

        def run(
            backend: str,
            poses: Tensor,
            activations: Tensor,
            weight: Tensor,
            *tensors: Tensor,
            layer: CapsConv | ClassCaps = layer,
            window: ops.Window = window,
            names: tuple[str, ...] = tuple(parameters),
        ) -> Tensor:
            given = dict(zip(names, tensors, strict=True))

            def call(router: Router) -> Capsules:
                return router.route_conv(Capsules(poses, activations), weight, window, backend=backend)

            router = layer.routing
            out = torch.func.functional_call(
                _Call(router, call), {f"router.{key}": each for key, each in given.items()}
            )
            # A router that does not read activations gives them no gradient.
            return joined(out) + 0 * activations.sum()

        inputs = [children.poses, children.activations, layer.weight, *parameters.values()]
        assert_matches_reference(
            functools.partial(run, backend), functools.partial(run, "reference"), inputs, draws=2, factor=3.0
        )


class _Call(torch.nn.Module):
    """A router and a function of it, so that `functional_call` replaces the router's parameters."""

    def __init__(self, router: Router, call: Any) -> None:
        super().__init__()
        self.router, self.call = router, call

    def forward(self) -> Capsules:
        return self.call(self.router)


COMPILED = [
    name for name in sorted(ops.ROUTINGS) if any(k.backend == "cpu" and k.conv for k in ops.ROUTINGS[name].kernels)
]


@pytest.mark.parametrize("name", COMPILED)
def test_signals_run_in_the_compiled_kernel(name: str) -> None:
    for layer, sides in layers(name)[:3]:
        layer.backend = "cpu"
        assert layer(grid(*sides)).poses.isfinite().all()
    volume, sides = layers(name)[3]
    volume.backend = "cpu"
    with raises_about(ConfigError, "backend", "'cpu'", "two axes"):
        volume(grid(*sides))
    classes, sides = layers(name)[5]
    classes.backend = "cpu"
    assert classes(grid(*sides)).poses.shape == (2, 3, 16)


@every_router
@pytest.mark.parametrize("backend", ["auto", "reference", "recompute"])
def test_masked_children_have_no_effect(name: str, backend: str) -> None:
    for layer, sides in layers(name):
        layer.backend = backend
        children = grid(*sides, batch=3)
        mask = torch.rand(3, *sides, 2, generator=torch.Generator().manual_seed(1)) < 0.7
        mask[2] = False
        broken = Capsules(
            children.poses.masked_fill(~mask.unsqueeze(-1), torch.nan),
            children.activations.masked_fill(~mask, torch.inf),
        )
        for ours, theirs in zip(layer(broken, mask), layer(children, mask), strict=True):
            assert torch.equal(ours, theirs)
            assert not ours[2].any()
        window = layer.window(children)
        assert window.seen(mask).shape == (3, *window.positions)
        places = mask[..., 0]
        for ours, theirs in zip(
            layer(children, places), layer(children, places.unsqueeze(-1).expand_as(mask)), strict=True
        ):
            assert torch.equal(ours, theirs)


def test_coordinates_are_added_along_every_axis() -> None:
    for sides in ((3,), (2, 2, 3)):
        centres = [[0.1 + place for place in range(side)] for side in sides]
        window = ClassCaps(2, 3, centres=centres).window(grid(*sides))
        gathered = window.gather(grid(*sides))
        weight = torch.zeros(2, 3, 4, 4)
        votes = window.votes(gathered.poses, weight)[0, :, 0]  # [K*I, 16]
        expected = torch.cartesian_prod(*map(torch.tensor, centres)).view(-1, len(sides))  # [K, rank]
        assert torch.equal(votes[::2, : len(sides)], expected)
        assert not votes[:, len(sides) :].any()


def test_errors_name_the_argument() -> None:
    with raises_about(ConfigError, "kernel_size", "(3, 3)"):
        CapsConv1d(2, 3, (3, 3))
    for rank, kind in CAPS_CONVS.items():
        layer = kind(2, 3, 3)
        with raises_about(ShapeError, "children", (2,) * rank):
            layer(grid(*(2,) * rank))
        with raises_about(ShapeError, "poses", (2, *(3,) * (rank + 1), 2, 16)):
            layer(grid(*(3,) * (rank + 1)))
