import itertools
import math
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import Window, dynamic_routing, em_routing, receptive_centres
from torchcaps.types import Capsules

SHAPES = [((5, 6), (3, 3), 2), ((4, 4), (3, 3), 1), ((7, 5), (2, 2), 3), ((3, 4), (3, 4), 1)]
SHAPES += [((9,), (4,), 2), ((5,), (2,), 3), ((4, 3, 5), (2, 1, 3), 1), ((5, 4, 4), (3, 2, 2), 2)]


def grid(*sides: int, types: int = 2, size: int = 16, batch: int = 2) -> Capsules:
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(batch, *sides, types, size, generator=generator, dtype=torch.float64)
    return Capsules(poses, torch.rand(batch, *sides, types, generator=generator, dtype=torch.float64))


def seen_by(window: Window) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """For each place of the grid: which positions see it, and through which place of the kernel."""
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for position, corner in enumerate(itertools.product(*map(range, window.positions))):
        for k, inner in enumerate(itertools.product(*map(range, window.kernel))):
            place = tuple(first * window.stride + more for first, more in zip(corner, inner, strict=True))
            found.setdefault(place, []).append((position, k))
    return found


@pytest.mark.parametrize(("size", "kernel", "stride"), SHAPES)
def test_gather_finds_the_children_under_the_kernel(size, kernel, stride):
    window = Window(size, kernel, stride)
    children = grid(*size)
    seen = window.gather(children)
    positions = math.prod(window.positions)
    assert seen.poses.shape == (2 * positions, math.prod(kernel) * 2, 16)
    for place, where in seen_by(window).items():
        for position, k in where:
            for b in range(2):
                own = slice(2 * k, 2 * k + 2)
                torch.testing.assert_close(seen.poses[b * positions + position, own], children.poses[b][place])
                torch.testing.assert_close(
                    seen.activations[b * positions + position, own], children.activations[b][place]
                )


@pytest.mark.parametrize("background", [None, 0.0, -2.0])
@pytest.mark.parametrize(("size", "kernel", "stride"), SHAPES)
def test_softmax_over_parents_at_all_positions(size, kernel, stride, background):
    window = Window(size, kernel, stride)
    positions, places, types, parents = math.prod(window.positions), math.prod(kernel), 2, 3
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(2 * positions, places * types, parents, generator=generator, dtype=torch.float64)
    coupling = window.softmax(logits, background=background)
    for b in range(2):
        for where in seen_by(window).values():
            for type_ in range(types):
                rows = [(b * positions + position, k * types + type_) for position, k in where]
                own = torch.stack([logits[row] for row in rows]).flatten()
                if background is not None:
                    own = torch.cat([own, own.new_full((1,), background)])
                expected = own.softmax(0)[: len(rows) * parents].view(len(rows), parents)
                torch.testing.assert_close(torch.stack([coupling[row] for row in rows]), expected)


@pytest.mark.parametrize("background", [None, 0.0, torch.tensor(-2.0, dtype=torch.float64)])
@pytest.mark.parametrize("competition", ["global", "positions"])
@pytest.mark.parametrize(("size", "kernel", "stride"), SHAPES)
def test_exported_softmax_has_no_scatter(size, kernel, stride, competition, background, monkeypatch):
    window = Window(size, kernel, stride, competition=competition)
    shape = (2 * math.prod(window.positions), math.prod(kernel) * 2, 3)
    logits = 5 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = window.softmax(logits, background=background)
    monkeypatch.setattr("torch.compiler.is_exporting", lambda: True)
    graph = make_fx(lambda logits: window.softmax(logits, background=background))(logits)
    # ONNX Runtime loses parts of sums where an index of a scatter repeats and it has several threads.
    assert not [node for node in graph.graph.nodes if "scatter" in str(node.target) or "index_add" in str(node.target)]
    torch.testing.assert_close(graph(logits), expected)


def test_first_coupling_is_uniform_per_child():
    window = Window((5, 5), (3, 3), 2)
    coupling = window.softmax(torch.zeros(4, 9, 2, dtype=torch.float64)).unflatten(0, window.positions)
    assert float(coupling[0, 0, 0, 0]) == pytest.approx(1 / 2)
    assert float(coupling[0, 0, 2, 0]) == pytest.approx(1 / 4)
    assert float(coupling[0, 0, 8, 0]) == pytest.approx(1 / 8)


def test_local_competition_per_position():
    window = Window((4, 4), (3, 3), competition="local")
    logits = torch.randn(8, 18, 3)
    torch.testing.assert_close(window.softmax(logits), logits.softmax(-1))
    assert not torch.allclose(Window((4, 4), (3, 3)).softmax(logits), logits.softmax(-1))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e6])
def test_competition_is_stable(scale):
    logits = (scale * torch.randn(8, 18, 3)).requires_grad_()
    coupling = Window((4, 4), (3, 3)).softmax(logits)
    coupling.square().sum().backward()
    assert logits.grad is not None
    assert bool(coupling.isfinite().all() and logits.grad.isfinite().all())


@pytest.mark.parametrize("background", [None, 0.0, -2.0])
def test_competition_gradcheck(background):
    logits = torch.randn(4, 9, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: Window((5, 5), (3, 3), 2).softmax(x, background=background), logits)


@pytest.mark.parametrize("competition", ["global", "local"])
def test_full_window_equals_dense_layer(competition):
    window = Window((3, 3), (3, 3), competition=competition)
    children = grid(3, 3)
    seen = window.gather(children)
    votes = window.votes(seen.poses, torch.randn(18, 4, 4, 4, dtype=torch.float64))
    betas: dict[str, Any] = {
        "beta_u": torch.zeros(4, dtype=torch.float64),
        "beta_a": torch.zeros(4, dtype=torch.float64),
    }
    for routed, dense in (
        (
            em_routing(votes, seen.activations, softmax=window.softmax, **betas),
            em_routing(votes, seen.activations, **betas),
        ),
        (dynamic_routing(votes, leaky=True, softmax=window.softmax), dynamic_routing(votes, leaky=True)),
    ):
        torch.testing.assert_close(routed.poses, dense.poses)
        torch.testing.assert_close(routed.coupling, dense.coupling)


def test_uncovered_children_are_ignored():
    window = Window((4, 4), (3, 3), 2)
    children = grid(4, 4)
    poses = children.poses.clone()
    poses[:, 3] = torch.nan
    poses[:, :, 3] = torch.nan
    assert window.positions == (1, 1)
    torch.testing.assert_close(
        window.gather(Capsules(poses, children.activations)).poses, window.gather(children).poses
    )


def test_shared_weights_and_offsets():
    offsets = torch.tensor([[0.0, 10.0], [1.0, 20.0]])
    window = Window((1, 2), (1, 2), offsets=offsets)
    seen = window.gather(grid(1, 2, batch=1))
    weight = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    votes = window.votes(seen.poses, weight)
    plain = Window((1, 2), (1, 2)).votes(seen.poses, weight.repeat(2, 1, 1, 1))
    added = (votes - plain).unflatten(1, (2, 2))
    for place in range(2):
        torch.testing.assert_close(added[0, place, ..., :2], offsets[place].double().expand(2, 3, 2))
    assert bool((added[..., 2:] == 0).all())
    vectors = Window((1, 2), (1, 2), pose="vector").votes(seen.poses, torch.randn(2, 3, 16, 5, dtype=torch.float64))
    assert vectors.shape == (1, 4, 3, 5)


@pytest.mark.parametrize("competition", ["global", "local", "positions"])
@pytest.mark.parametrize(("size", "kernel", "stride"), SHAPES)
def test_children_per_parent_is_first_coupling(size, kernel, stride, competition):
    window = Window(size, kernel, stride, competition)
    positions = math.prod(window.positions)
    coupling = window.softmax(torch.zeros(positions, math.prod(kernel) * 2, 3))
    assert window.children_per_parent(2, 3) == pytest.approx(float(coupling.sum(dim=1).mean()), rel=1e-5)


def test_receptive_centres():
    assert receptive_centres(4, []) == [0.125, 0.375, 0.625, 0.875]
    assert receptive_centres(5, [(3, 1)]) == pytest.approx([0.3, 0.5, 0.7])
    # The rows that a position of the second layer is made of are 0 to 8, 2 to 10 and so on: their middle is the centre.
    convs = [(5, 2), (1, 1), (3, 2), (3, 1)]
    centres = receptive_centres(32, convs)
    spans = [(row, row) for row in range(32)]
    for kernel, stride in convs:
        spans = [(spans[at][0], spans[at + kernel - 1][1]) for at in range(0, len(spans) - kernel + 1, stride)]
    assert centres == pytest.approx([(first + last + 1) / 2 / 32 for first, last in spans])


def test_errors_name_the_argument():
    with raises_about(ConfigError, "stride", "0"):
        Window((4, 4), (3, 3), 0)
    with raises_about(ConfigError, "kernel", "(3, 0)"):
        Window((4, 4), (3, 0))
    with raises_about(ConfigError, "kernel", "(3,)"):
        Window((4, 4), (3,))
    with raises_about(ConfigError, "competition", "'none'"):
        Window((4, 4), (3, 3), competition="none")  # pyright: ignore[reportArgumentType]
    with raises_about(ConfigError, "pose", "'point'"):
        Window((4, 4), (3, 3), pose="point")  # pyright: ignore[reportArgumentType]
    with raises_about(ShapeError, "children", "(2, 5)"):
        Window((2, 5), (3, 3))


def test_offsets_scale_with_presence():
    offsets = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    window = Window(grid=(1, 2), kernel=(1, 2), pose="vector", offsets=offsets)
    poses, weight = torch.zeros(1, 4, 3), torch.zeros(2, 5, 3, 3)
    presence = torch.tensor([[1.0, 0.5, 0.0, 2.0]])
    votes = window.votes(poses, weight, presence)
    assert votes[0, :, 0].tolist() == [[1, 2, 0], [0.5, 1, 0], [0, 0, 0], [6, 8, 0]]
    assert torch.equal(window.votes(poses, weight, torch.ones(1, 4)), window.votes(poses, weight))
