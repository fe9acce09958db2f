from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import KuramotoConv2d, KuramotoReadout


def make(*args: int, **options: float) -> KuramotoConv2d:
    torch.manual_seed(0)
    return KuramotoConv2d(*args, **options).double()  # pyright: ignore[reportArgumentType]


def lengths(states: torch.Tensor, dim: int) -> torch.Tensor:
    return states.unflatten(1, (-1, dim)).norm(dim=2)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_oscillators_are_unit_vectors(dim: int) -> None:
    layer = make(4, dim, iters=5)
    states = layer.states(10 * torch.randn(2, 4 * dim, 6, 7).double())
    assert len(states) == 6
    for state in states:
        torch.testing.assert_close(lengths(state, dim), torch.ones(2, 4, 6, 7).double())


@torch.no_grad()
def test_update_equals_formula() -> None:
    layer = make(1, 3, 1, iters=1, step=0.3)
    stimulus = torch.randn(1, 3, 1, 1).double()
    before, after = (state.flatten() for state in layer.states(stimulus))
    omega = layer.omega()[0]
    assert torch.equal(omega, -omega.T)
    force = omega @ before + layer.coupling.weight[:, :, 0, 0] @ before + stimulus.flatten()
    moved = before + 0.3 * (force - (force @ before) * before)
    torch.testing.assert_close(after, moved / moved.norm())


@torch.no_grad()
def test_strong_stimulus_dominates() -> None:
    layer = make(3, 2, iters=40, step=0.05)
    stimulus = torch.randn(1, 6, 5, 5).double()
    target = (stimulus.unflatten(1, (3, 2)) / lengths(stimulus, 2).unsqueeze(2)).flatten(1, 2)
    agreement = (layer(10 * target) * target).unflatten(1, (3, 2)).sum(2)
    assert agreement.mean() > 0.95


@torch.no_grad()
def test_isolated_oscillator_rotates() -> None:
    layer = make(1, 2, iters=1, step=1e-4)
    layer.coupling.weight.zero_()
    layer.frequency.fill_(2.0)
    before, after = layer.states(torch.zeros(1, 2, 1, 1).double())
    (x, y), (u, v) = before.flatten().tolist(), after.flatten().tolist()
    assert abs(x * v - y * u) == pytest.approx(2e-4, rel=1e-4)


@torch.no_grad()
def test_positive_coupling_brings_phases_together() -> None:
    layer = make(1, 2, 3, iters=40, step=0.2)
    layer.frequency.zero_()
    layer.coupling.weight.zero_()
    layer.coupling.weight[0, 0] = layer.coupling.weight[1, 1] = 1.0
    push = torch.randn(1, 2, 8, 8).double()
    order = [lengths(state.mean(dim=(2, 3), keepdim=True), 2).item() for state in (layer.states(push))]
    layer.coupling.weight.zero_()
    alone = lengths(layer(push).mean(dim=(2, 3), keepdim=True), 2).item()
    assert order[-1] > alone + 0.2


def test_gradients_reach_everything() -> None:
    layer, readout = make(3, 3), KuramotoReadout(3, 3, 4).double()
    stimulus = torch.randn(2, 9, 5, 5).double().requires_grad_()
    readout(layer(stimulus)).square().sum().backward()
    for value in (stimulus, *layer.parameters(), *readout.parameters()):
        assert value.grad is not None
        assert value.grad.abs().sum() > 0


@torch.no_grad()
def test_readout_ignores_common_phase() -> None:
    torch.manual_seed(0)
    readout = KuramotoReadout(3, 2, 4).double()
    readout.mix.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
    # Mixtures that treat both axes alike, as complex numbers do.
    real, imaginary = torch.randn(2, 4, 3).double()
    rows = [torch.stack([real, -imaginary], -1), torch.stack([imaginary, real], -1)]
    readout.mix.weight.copy_(torch.stack(rows, 1).flatten(0, 1).flatten(1)[:, :, None, None])
    angle = torch.rand(2, 3, 5, 5).double() * 6
    states = [torch.stack([shifted.cos(), shifted.sin()], 2).flatten(1, 2) for shifted in (angle, angle + 1)]
    torch.testing.assert_close(readout(states[0]), readout(states[1]))


def test_zero_input_is_finite() -> None:
    layer = make(2, 2)
    stimulus = torch.zeros(1, 4, 3, 3).double().requires_grad_()
    layer(stimulus).sum().backward()
    assert stimulus.grad is not None
    assert stimulus.grad.isfinite().all()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dim", 1),
        ("kernel_size", 4),
        ("iters", 0),
        ("step", 0.0),
    ],
)
def test_errors_name_the_argument(option: str, value: float) -> None:
    with raises_about(ConfigError, f"{option}:", value):
        make(4, **{option: value})


def test_stimulus_of_wrong_shape() -> None:
    with raises_about(ShapeError, "stimulus", "(2, 6, 5, 5)"):
        make(4).states(torch.zeros(2, 6, 5, 5).double())
