import copy

import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsConv2d, DynamicRouting, EMRouting
from torchcaps.types import Capsules


def children(height: int = 5, width: int = 6, types: int = 2, size: int = 16) -> Capsules:
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(2, height, width, types, size, generator=generator)
    return Capsules(poses, torch.rand(2, height, width, types, generator=generator))


@pytest.mark.parametrize("competition", ["global", "local"])
@pytest.mark.parametrize("routing", [EMRouting(), EMRouting(covariance="full"), DynamicRouting(leaky=True)])
def test_every_router_gives_a_grid_of_parents(routing, competition):
    layer = CapsConv2d(2, 3, 3, 2, routing=copy.deepcopy(routing), competition=competition)
    parents = layer(children())
    assert parents.poses.shape == (2, 2, 2, 3, 16)
    assert parents.activations.shape == (2, 2, 2, 3)
    assert bool((parents.activations >= 0).all() and (parents.activations <= 1).all())


def test_vector_poses_of_any_size():
    layer = CapsConv2d(2, 3, 3, 2, dims=(8, 5), pose="vector", routing=DynamicRouting())
    assert layer(children(size=8)).poses.shape == (2, 2, 2, 3, 5)
    assert layer.weight.shape == (18, 3, 8, 5)


def test_positions_share_weights():
    layer = CapsConv2d(2, 3, 2, 2)
    first = children(2, 2)
    twice = Capsules(torch.cat([first.poses] * 2, dim=2), torch.cat([first.activations] * 2, dim=2))
    left, right = layer(twice).poses.unbind(2)
    torch.testing.assert_close(left, right)


def test_competition_option_changes_results():
    torch.manual_seed(0)
    layer = CapsConv2d(2, 3, 3, 1)
    local = CapsConv2d(2, 3, 3, 1, competition="local")
    local.load_state_dict(layer.state_dict())
    assert not torch.allclose(layer(children()).poses, local(children()).poses)


def test_trace_ends_in_result():
    layer = CapsConv2d(2, 3, 3, 2)
    trace = layer.trace(children())
    assert trace.poses.shape == (3, 2 * 2 * 2, 3, 16)
    parents = layer(children())
    torch.testing.assert_close(trace.poses[-1].view_as(parents.poses), parents.poses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(trace.activations[-1].view_as(parents.activations), parents.activations)


def test_repr():
    assert "competition='global'" in repr(CapsConv2d(2, 3))


def test_errors_name_the_argument():
    layer = CapsConv2d(2, 3)
    with raises_about(ShapeError, "children", "Tensor"):
        layer(children().poses)
    with raises_about(ShapeError, "poses", "(2, 5, 6, 3, 16)"):
        layer(children(types=3))
    with raises_about(ShapeError, "activations", "(2, 5, 6)"):
        layer(Capsules(children().poses, children().activations[..., 0]))
    with raises_about(ShapeError, "in_dim, out_dim", "8, 16"):
        CapsConv2d(2, 3, dims=(8, 16))
    with raises_about(ConfigError, "backend", "'fast'"):
        CapsConv2d(2, 3, backend="fast")
    with raises_about(ConfigError, "backend", "'cpu'", "'logits'"):
        logits = torch.zeros(2 * 2 * 2, 18, 3)
        window = layer.window(children())
        ops.route_conv(children(), layer.weight, window, "dynamic", backend="cpu", logits=logits)
