import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsLinear, SelfRouting
from torchcaps.types import Capsules

CHILDREN = Capsules(torch.rand(2, 6, 4), torch.rand(2, 6))


@pytest.mark.parametrize(("in_caps", "shape"), [(6, (6, 3)), (None, (3,))])
def test_gate_per_child_or_shared(in_caps: int | None, shape: tuple[int, ...]) -> None:
    layer = CapsLinear(in_caps, 3, in_dim=4, out_dim=5, routing=SelfRouting())
    weight, bias = (layer.get_parameter(f"routing.route_{name}") for name in ("weight", "bias"))
    assert (tuple(weight.shape), tuple(bias.shape)) == ((*shape, 4), shape)
    expected = ops.self_routing(
        ops.vote(CHILDREN.poses, layer.weight),
        CHILDREN.activations,
        CHILDREN.poses,
        route_weight=weight,
        route_bias=bias,
    )
    torch.testing.assert_close(layer(CHILDREN), expected.capsules)


def test_learns_from_activations_alone() -> None:
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5, routing=SelfRouting())
    layer(CHILDREN).activations[:, 0].sum().backward()
    for name in ("weight", "bias"):
        grad = layer.get_parameter(f"routing.route_{name}").grad
        assert grad is not None
        assert float(grad.abs().min()) > 0


def test_prepare_once() -> None:
    router = SelfRouting()
    with raises_about(ConfigError, "routing", "a new one"):
        router(torch.randn(2, 6, 3, 5), CHILDREN)
    router.prepare(6, 3, 4, 5)
    with raises_about(ConfigError, "routing", "another layer"):
        router.prepare(6, 3, 4, 5)
