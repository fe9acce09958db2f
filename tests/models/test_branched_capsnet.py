from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raising import raises_about
from torchcaps.data import load_data, to_float
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models import BranchedCapsNet, create_model
from torchcaps.nn import MarginLoss
from torchcaps.types import Capsules


def branched(**options: Any) -> BranchedCapsNet:
    model = create_model("branched_capsnet", **options)
    assert isinstance(model, BranchedCapsNet)
    return model.eval()


def parts_of(model: BranchedCapsNet, images: Tensor) -> list[Capsules]:
    """The class capsules of each branch."""
    maps = model.stem(images)
    return [layer(branch(maps)) for branch, layer in zip(model.branches, model.head, strict=True)]


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameters() -> None:
    one, two, three = (parameters(branched(decoder=None, branches=count)) for count in (1, 2, 3))
    assert two == 281_552
    assert two - one == three - two


def test_class_length_combines_branches() -> None:
    torch.manual_seed(0)
    model, images = branched(branches=3), torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        whole, parts = model(images), parts_of(model, images)
    assert whole.poses.shape == (2, 10, 24)
    for number, part in enumerate(parts):
        torch.testing.assert_close(whole.poses[..., 8 * number : 8 * number + 8], part.poses / 3**0.5)
    squares = torch.stack([part.activations for part in parts]).square()  # [3, B, J]
    torch.testing.assert_close(whole.activations, squares.mean(dim=0).sqrt())
    assert not torch.allclose(parts[0].activations, parts[1].activations, rtol=1e-3)


def test_activations_that_are_not_lengths() -> None:
    torch.manual_seed(0)
    model, images = branched(num_classes=3, routing="em"), torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        whole = model(images)
        squares = torch.stack([part.activations for part in parts_of(model, images)]).square()  # [2, B, J]
    torch.testing.assert_close(whole.activations, squares.mean(dim=0).sqrt())
    assert whole.activations.max() <= 1


def test_trace_joins_branches() -> None:
    torch.manual_seed(0)
    model, images = branched(num_classes=3, routing={"name": "dynamic", "iters": 2}), torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        trace, maps = model.trace(images), model.stem(images)
        pairs = zip(model.branches, model.head, strict=True)
        parts = [layer.trace(branch(maps)) for branch, layer in pairs]  # pyright: ignore[reportCallIssue]
    assert trace.votes.shape == (2, 24, 3, 16)
    assert trace.coupling.shape == trace.logits.shape == (2, 2, 24, 3)
    for number, part in enumerate(parts):
        children, place = slice(12 * number, 12 * number + 12), slice(8 * number, 8 * number + 8)
        torch.testing.assert_close(trace.coupling[:, :, children], part.coupling)
        torch.testing.assert_close(trace.logits[:, :, children], part.logits)
        torch.testing.assert_close(trace.votes[:, children, :, place], part.votes / 2**0.5)
        torch.testing.assert_close(trace.poses[..., place], part.poses / 2**0.5)
    assert trace.votes[:, :12, :, 8:].count_nonzero() == 0
    assert trace.votes[:, 12:, :, :8].count_nonzero() == 0
    torch.testing.assert_close(trace.activations, torch.linalg.vector_norm(trace.poses, dim=-1))


def test_branches_route_separately() -> None:
    routers = {id(layer.routing) for layer in branched(branches=3).head}
    assert len(routers) == 3


@pytest.mark.parametrize("branches", [0, -1, 1.5, True])
def test_number_of_branches_is_checked(branches: object) -> None:
    with raises_about(ConfigError, "branches:", "from 1 to", f"got {branches}"):
        create_model("branched_capsnet", branches=branches)


def test_too_small_image_names_minimum() -> None:
    with raises_about(ShapeError, "image_shape:", "at least 5", "got (1, 28, 4)"):
        create_model("branched_capsnet", image_shape=(1, 28, 4))


@pytest.mark.slow
def test_every_branch_learns_digits() -> None:
    torch.manual_seed(0)
    data = load_data("digits", "train")
    images, labels = to_float(data.images[:64]), data.labels[:64]
    model, loss = branched(decoder=None).train(), MarginLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(12):
        optimiser.zero_grad()
        capsules = model(images)
        loss(capsules, labels).backward()
        optimiser.step()
    for capsules in [model(images), *parts_of(model, images)]:
        assert (capsules.activations.argmax(-1) == labels).float().mean() > 0.7
