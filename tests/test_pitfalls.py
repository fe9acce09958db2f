"""Errors found in public capsule code: each has a test here that it would fail.

A short error is written out beside the correct code.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchcaps import ops
from torchcaps.models import create_model
from torchcaps.nn import (
    DECODERS,
    CapsLinear,
    DynamicRouting,
    MarginLoss,
    PrimaryCaps2d,
    ReconstructionLoss,
    mask_capsules,
)
from torchcaps.types import Capsules


def lengths(*values: float) -> Capsules:
    activations = torch.tensor([values])
    return Capsules(activations.unsqueeze(-1), activations)


def test_primary_capsule_is_eight_channels() -> None:
    # Channel c at position p has the number 100 c + p, so that a capsule shows its channels and position.
    numbers = (100 * torch.arange(16).view(16, 1) + torch.arange(36)).view(1, 16, 6, 6).float()
    layer = PrimaryCaps2d(16, caps=2, dim=8, kernel_size=1, stride=1)
    nn.init.dirac_(layer.conv.weight)
    nn.init.zeros_(layer.conv.bias)  # pyright: ignore[reportArgumentType]
    poses = layer(numbers).flatten().poses[0]  # [72, 8]
    right = torch.stack(
        [numbers[0, kind * 8 : kind * 8 + 8, y, x] for y in range(6) for x in range(6) for kind in (0, 1)]
    )
    torch.testing.assert_close(poses, ops.squash(right))
    wrong = ops.squash(numbers.view(72, 8))
    assert not torch.allclose(poses, wrong)


def test_coupling_sums_to_one_over_parents() -> None:
    coupling = ops.dynamic_routing(torch.randn(2, 6, 3, 4), iters=3).coupling
    torch.testing.assert_close(coupling.sum(2), torch.ones(2, 6))
    assert not torch.allclose(coupling.sum(1), torch.ones(2, 3))


@pytest.mark.parametrize("name", ["capsnet", "capsnet_small"])
def test_samples_are_independent(name: str) -> None:
    model = create_model(name, image_shape=(1, 19, 19)).eval()
    images = torch.rand(3, 1, 19, 19)
    with torch.no_grad():
        for i in range(3):
            torch.testing.assert_close(model(images)[0][i], model(images[i : i + 1])[0][0])


@pytest.mark.parametrize(("name", "bias"), [("capsnet_small", "head.bias"), ("cnn_small", "head.4.bias")])
def test_batch_of_one_is_not_always_class_0(name: str, bias: str) -> None:
    model = create_model(name, num_classes=4).eval()
    images = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        model.get_parameter(bias)[2] = 5.0
        together = model(images).activations
        alone = torch.cat([model(image.unsqueeze(0)).activations for image in images])
    torch.testing.assert_close(alone, together)
    assert alone.argmax(-1).tolist() == [2, 2, 2]
    wrong = torch.cat([one.unsqueeze(0).softmax(0) for one in alone])
    assert wrong.argmax(-1).tolist() == [0, 0, 0]


def test_squash_over_pose_axis() -> None:
    torch.manual_seed(0)
    out = ops.dynamic_routing(100 * torch.randn(5, 6, 3, 4), iters=1).poses
    torch.testing.assert_close(torch.linalg.vector_norm(out, dim=2), torch.ones(5, 3), rtol=0, atol=1e-2)
    torch.testing.assert_close(
        out / out.norm(dim=2, keepdim=True), ops.squash(out) / ops.squash(out).norm(dim=2, keepdim=True)
    )


@pytest.mark.parametrize("iters", [1, 3])
def test_black_images_and_zero_votes_have_finite_gradients(iters: int) -> None:
    votes = torch.zeros(2, 6, 3, 4, requires_grad=True)
    out = ops.dynamic_routing(votes, iters=iters)
    (out.poses.sum() + out.activations.sum()).backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()
    model = create_model("capsnet_small", routing={"name": "dynamic", "iters": iters})
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    MarginLoss()(model(torch.zeros(2, 1, 28, 28)), torch.tensor([0, 1])).backward()
    gradients = [model.get_parameter(name).grad for name in ("head.weight", "primary.conv.weight", "stem.0.weight")]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_margins_are_reachable() -> None:
    there = lengths(0.9, *[0.1] * 9)
    assert MarginLoss()(there, torch.tensor([0])) == 0
    softened = Capsules(there.poses, there.activations.softmax(-1))
    assert MarginLoss()(softened, torch.tensor([0])) > 0.4
    # Lengths speak for themselves: a network may find all of its classes in one image.
    out = create_model("capsnet_small")(torch.rand(2, 1, 28, 28))
    torch.testing.assert_close(out.activations, torch.linalg.vector_norm(out.poses, dim=-1))


def test_number_of_iterations() -> None:
    votes = torch.randn(2, 6, 3, 4)
    coupling = [ops.dynamic_routing(votes, iters=iters).coupling for iters in (1, 2, 3)]
    torch.testing.assert_close(coupling[0], torch.full((2, 6, 3), 1 / 3))
    assert not torch.allclose(coupling[1], coupling[0])
    assert not torch.allclose(coupling[2], coupling[1])
    images = torch.rand(1, 1, 28, 28)
    for iters in (1, 2, 3):
        model = create_model("capsnet_small", routing={"name": "dynamic", "iters": iters})
        assert model.trace(images).iters == iters


def test_fresh_weights_leave_room_to_learn() -> None:
    torch.manual_seed(0)
    poses = ops.squash(torch.randn(2, 1152, 8))
    children = Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))
    layer = CapsLinear(1152, 10, in_dim=8, out_dim=16, routing=DynamicRouting(iters=3), bias=True)
    assert layer(children).activations.max() < 0.95
    # Drawn from a unit normal, all lengths are one before anything was learned, and their gradient is gone.
    nn.init.normal_(layer.weight)
    assert layer(children).activations.min() > 0.99


class Largest(TorchDispatchMode):
    """Keeps the number of entries of the largest tensor that any operation gives."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(item, Tensor):
                self.numel = max(self.numel, item.untyped_storage().nbytes() // item.element_size())
        return out


@pytest.mark.parametrize("in_caps", [12, None])
def test_weight_is_not_copied_per_sample(in_caps: int | None) -> None:
    layer = CapsLinear(in_caps, 7, in_dim=8, out_dim=9)
    poses = torch.randn(20, 12, 8, requires_grad=True)
    with Largest() as largest:
        layer(Capsules(poses, torch.ones(20, 12))).poses.sum().backward()
    votes = 20 * 12 * 7 * 9
    assert largest.numel <= votes
    with Largest() as largest:
        weight = layer.weight.expand(20, 12, 7, 8, 9).contiguous()
        (poses[:, :, None, None, :] @ weight).sum().backward()
    assert largest.numel == 8 * votes


def test_reconstruction_is_summed_over_pixels() -> None:
    grey, black = torch.full((2, 1, 28, 28), 0.5), torch.zeros(2, 1, 28, 28)
    assert ReconstructionLoss()(grey, black).item() == pytest.approx(0.0005 * 784 * 0.25)


def test_margin_is_squared() -> None:
    assert MarginLoss()(lengths(0.5, 0.0), torch.tensor([0])).item() == pytest.approx(0.4**2)
    assert MarginLoss()(lengths(0.9, 0.5), torch.tensor([0])).item() == pytest.approx(0.5 * 0.4**2)


def test_decoder_gets_true_class() -> None:
    capsules = Capsules(torch.ones(1, 3, 2), torch.tensor([[0.1, 0.9, 0.2]]))
    assert mask_capsules(capsules, torch.tensor([2]))[0].tolist() == [[0, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize("name", DECODERS.names())
def test_decoder_range_matches_images(name: str) -> None:
    painted = DECODERS[name](3, 4, (1, 12, 12))(100 * torch.randn(8, 3, 4))
    assert painted.min() >= 0
    assert painted.max() <= 1
