"""Errors found in public code for matrix capsules: each has a test here that it would fail.

A short error is written out beside the correct code. Layers are tested with the reference and with the
kernel.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps import ops
from torchcaps.data import DATASETS, DatasetEntry, ImageDataset, InMemoryDataset
from torchcaps.errors import TorchcapsError
from torchcaps.models import MatrixCapsNet, create_model
from torchcaps.nn import CapsConv2d, ClassCaps, EMRouting, SpreadLoss
from torchcaps.ops import _native
from torchcaps.ops.em.schedules import SCHEDULES
from torchcaps.train import fit, load_recipe
from torchcaps.types import Capsules

missing = _native.missing_reason()
both_backends = pytest.mark.parametrize(
    "backend", ["reference", pytest.param("cpu", marks=pytest.mark.skipif(missing is not None, reason=str(missing)))]
)


def grid(height: int = 5, width: int = 5, types: int = 2, batch: int = 2) -> Capsules:
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(batch, height, width, types, 16, generator=generator)
    return Capsules(poses, torch.rand(batch, height, width, types, generator=generator))


def make_layers(backend: Any, **options: Any) -> list[CapsConv2d | ClassCaps]:
    torch.manual_seed(0)
    places = [0.1, 0.3, 0.5, 0.7, 0.9]
    return [
        CapsConv2d(2, 3, 3, 2, routing=EMRouting(**options), backend=backend),
        ClassCaps(2, 3, routing=EMRouting(**options), centres=(places, places), backend=backend),
    ]


@both_backends
def test_child_activation_does_not_cancel(backend: str) -> None:
    children = grid()
    children.activations[:, 2, 2, 1] = 0
    poses = children.poses.clone()
    poses[:, 2, 2, 1] += 100
    for layer in make_layers(backend, iters=1):
        for one, other in zip(layer(children), layer(Capsules(poses, children.activations)), strict=True):
            torch.testing.assert_close(one, other)

        def moved(activation: float, layer: CapsConv2d | ClassCaps = layer) -> float:
            activations = children.activations.clone()
            activations[:, 2, 2, 1] = activation
            near, far = (layer(Capsules(at, activations)).poses for at in (children.poses, poses))
            return float((far - near).abs().sum().detach())

        # A child that is there is heard, the more the more it is there.
        assert 0 < 10 * moved(0.01) < moved(1.0)


def test_inverse_temperature_rises() -> None:
    for name in SCHEDULES:
        temps = [SCHEDULES[name](iteration) for iteration in range(10)]
        assert all(later > sooner for sooner, later in itertools.pairwise(temps))
    generator = torch.Generator().manual_seed(0)
    votes = torch.randn(1, 32, 2, 16, generator=generator)
    votes[:, :, 0] *= 0.01
    children = Capsules(votes[:, :, 0], torch.ones(1, 32))

    def apart(**options: Any) -> float:
        router = EMRouting(**options)
        router.prepare(32, 2, 16, 16)
        agreed, scattered = router(votes, children).activations.detach()[0].tolist()
        return agreed - scattered

    assert apart() > 0.2
    # With a constant and tiny inverse temperature, activations do not depend on the votes.
    assert abs(apart(schedule=1e-4)) < 0.01


def test_positions_compete_for_a_child() -> None:
    def whole(competition: Any) -> Tensor:
        """What all positions together get of the child at each place, [B, 5, 5]."""
        layer = CapsConv2d(1, 3, 3, 2, competition=competition)
        coupling = layer.trace(grid(types=1)).coupling[-1].sum(-1)  # [B*H'*W', K*K]
        return F.fold(coupling.view(2, 4, 9).transpose(1, 2), (5, 5), (3, 3), stride=2).squeeze(1).detach()

    torch.testing.assert_close(whole("global"), torch.ones(2, 5, 5))
    # Left to themselves the four positions that see the child in the middle give it away four times.
    assert float(whole("local")[0, 2, 2]) == pytest.approx(4)


@both_backends
def test_densities_are_compared_as_logarithms(backend: str) -> None:
    far = Capsules(1e3 * grid().poses, grid().activations)
    for layer in make_layers(backend):
        assert all(bool(part.isfinite().all()) for part in layer(far))
    votes = 1e3 * torch.randn(2, 6, 3, 16, generator=torch.Generator().manual_seed(0))
    none = torch.zeros(3)
    trace = ops.trace("em", votes, torch.ones(2, 6), beta_u=none, beta_a=none)
    torch.testing.assert_close(trace.coupling[-1].sum(-1), torch.ones(2, 6))
    normal = torch.distributions.Normal(trace.poses[0].unsqueeze(1), trace.extras["variance"][0].sqrt().unsqueeze(1))
    density = normal.log_prob(votes).exp().prod(dim=-1)  # [B, I, J]
    assert bool((density / density.sum(-1, keepdim=True)).isnan().any())


def test_batch_of_one() -> None:
    torch.manual_seed(0)
    model = create_model("matrix_capsnet_small", image_shape=(1, 20, 20), num_classes=3)
    images = torch.rand(3, 1, 20, 20)
    together = model(images)
    for n in range(3):
        alone = model(images[n : n + 1])
        torch.testing.assert_close(alone.poses[0], together.poses[n], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(alone.activations[0], together.activations[n], rtol=1e-4, atol=1e-5)


def test_cost_uses_log_of_deviation() -> None:
    votes = torch.randn(1, 9, 2, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    none = torch.zeros(2, dtype=torch.float64)

    def cost(votes: Tensor) -> Tensor:
        options: dict[str, Any] = {"beta_u": none, "beta_a": none, "iters": 1, "variance_floor": 1e-9}
        return ops.trace("em", votes, torch.ones(1, 9, dtype=torch.float64), **options).extras["cost"][0]

    # Votes e times as far apart: ln sigma is one more in each of 16 dimensions, for 9 children who give a half each.
    # With the logarithm of the variance it would be twice as much.
    more = cost(torch.e * votes) - cost(votes)
    torch.testing.assert_close(more, torch.full_like(more, 16 * 4.5))


@both_backends
@pytest.mark.parametrize("name", ["beta_u", "beta_a"])
def test_betas_are_per_type(backend: str, name: str) -> None:
    # As many types as positions along a side, so that a wrong order would not be an error.
    torch.manual_seed(0)
    layer = CapsConv2d(2, 3, 3, 1, routing=EMRouting(iters=1), backend=backend)  # pyright: ignore[reportArgumentType]
    before = layer(grid()).activations
    with torch.no_grad():
        layer.routing.get_parameter(name)[0] += 1
    changed = layer(grid()).activations != before  # [B, 3, 3, J]
    assert bool(changed[..., 0].all())
    assert not bool(changed[..., 1:].any())


@both_backends
def test_poses_are_multiplied_as_matrices(backend: str) -> None:
    layer = CapsConv2d(1, 1, 1, 1, backend=backend)  # pyright: ignore[reportArgumentType]
    # The child at place n has the entries 100 n to 100 n + 15, row by row.
    numbers = 100.0 * torch.arange(6).view(1, 2, 3, 1, 1) + torch.arange(16.0)
    weight = torch.tensor([[1.0, 0, 0, 2], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 3, 1]])
    with torch.no_grad():
        layer.weight.copy_(weight)
        out = layer(Capsules(numbers, torch.ones(1, 2, 3, 1))).poses
    torch.testing.assert_close(out, (numbers.unflatten(-1, (4, 4)) @ weight).flatten(-2))
    assert not torch.allclose(out, (weight @ numbers.unflatten(-1, (4, 4))).flatten(-2))


def test_coordinates_of_receptive_centres() -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"routing": {"name": "em", "iters": 1}, "competition": "local", "coordinates": 1.0}
    model = create_model("matrix_capsnet_small", image_shape=(1, 28, 32), num_classes=3, **options)
    assert isinstance(model, MatrixCapsNet)
    model.stem[0] = nn.Identity()
    images = torch.rand(4, 1, 28, 32, requires_grad=True)
    features = model.features(images).poses  # [B, H, W, D, 16]
    offsets = model.head.offsets
    assert offsets is not None
    places = offsets.view(*features.shape[1:3], 2)
    for row in range(features.shape[1]):
        for column in range(features.shape[2]):
            (looked,) = torch.autograd.grad(features[:, row, column].square().sum(), images, retain_graph=True)
            at = looked.abs().sum((0, 1)).nonzero().float()  # [pixels, 2]
            centre = (at.amin(0) + at.amax(0) + 1) / 2 / torch.tensor([28.0, 32.0])
            torch.testing.assert_close(places[row, column], centre)
    # Added, not put beside: the classes have as many entries as before.
    assert model(images).poses.shape == (4, 3, 16)


def tiny(split: str) -> ImageDataset:
    generator = torch.Generator().manual_seed(len(split))
    images = torch.randint(256, (12, 1, 18, 18), dtype=torch.uint8, generator=generator)
    return InMemoryDataset("tiny", split, images, torch.arange(12) % 3, ("a", "b", "c"), "drawn at random")


def train(folder: Path, monkeypatch: pytest.MonkeyPatch, *changes: str) -> None:
    monkeypatch.setattr(DATASETS, "_items", {**DATASETS._items, "tiny": DatasetEntry("", "", "", tiny)})
    recipe = load_recipe("smallnorb", [
        "data.name=tiny", "data.options={}", "data.augment={}", "data.batch_size=4", "loss.options.steps=5",
        "trainer.epochs=2", "trainer.accelerator=cpu", *changes,
    ])  # fmt: skip
    fit(recipe, folder)


def test_spread_margin_grows_with_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    margins: list[float] = []
    forward = SpreadLoss.forward

    def watched(self: SpreadLoss, capsules: Capsules, labels: Tensor) -> Tensor:
        if self.training:
            margins.append(float(self.margin))
        return forward(self, capsules, labels)

    monkeypatch.setattr(SpreadLoss, "forward", watched)
    train(tmp_path / "run", monkeypatch)
    # Three steps an epoch; validation, which asks for the loss as well, does not count.
    assert margins == pytest.approx([0.2, 0.34, 0.48, 0.62, 0.76, 0.9])


def test_no_step_is_skipped_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TorchcapsError, match=r"loss: .* got (nan|inf) at step 2\b"):
        train(tmp_path / "run", monkeypatch, "optim.lr=1e30", "optim.warmup=0")
