from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.ops import squash, squashed_length
from torchcaps.ops.squash import SquashForm

FORMS = get_args(SquashForm)
by_form = pytest.mark.parametrize("form", FORMS)


@pytest.mark.parametrize(
    ("form", "vector", "length"),
    [
        ("standard", (3.0, 4.0), 25 / 26),
        ("standard", (0.3, 0.4), 0.25 / 1.25),
        ("half", (3.0, 4.0), 25 / 25.5),
        ("half", (0.3, 0.4), 0.25 / 0.75),
        ("exponential", (3.0, 4.0), 1 - math.exp(-5)),
        ("exponential", (0.3, 0.4), 1 - math.exp(-0.5)),
    ],
)
def test_values_by_hand(form: SquashForm, vector: tuple[float, float], length: float) -> None:
    got = squash(torch.tensor(vector, dtype=torch.float64), form=form)
    torch.testing.assert_close(got, torch.tensor([0.6 * length, 0.8 * length], dtype=torch.float64))


@by_form
def test_standard_is_the_default_only(form: SquashForm) -> None:
    vector = torch.tensor([0.6, 0.8])
    assert torch.equal(squash(vector), squash(vector, form=form)) == (form == "standard")


@by_form
def test_zero_stays_zero_with_finite_gradient(form: SquashForm) -> None:
    zero = torch.zeros(2, 3, requires_grad=True)
    out = squash(zero, form=form)
    out.sum().backward()
    assert torch.equal(out, torch.zeros(2, 3))
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


@by_form
@pytest.mark.parametrize("dim", [-1, 1])
def test_gradient(form: SquashForm, dim: int) -> None:
    presquash = torch.randn(3, 4, 2, dtype=torch.float64)
    presquash[0] = 0
    presquash[1] *= 10
    assert torch.autograd.gradcheck(lambda s: squash(s, dim=dim, form=form), presquash.requires_grad_())


@by_form
@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e3, 1e8]),
    data=st.data(),
)  # fmt: skip
def test_direction_is_kept_and_length_below_one(
    form: SquashForm, shape: list[int], scale: float, data: st.DataObject
) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    presquash = scale * torch.randn(shape, dtype=torch.float64)
    out = squash(presquash, dim=dim, form=form)
    before = torch.linalg.vector_norm(presquash, dim=dim, keepdim=True)
    after = torch.linalg.vector_norm(out, dim=dim, keepdim=True)
    assert (after <= 1 + 1e-12).all()
    torch.testing.assert_close(out * before, presquash * after, rtol=1e-9, atol=0)


@by_form
def test_squash_is_monotonic(form: SquashForm) -> None:
    lengths = squash(torch.linspace(0, 20, 200, dtype=torch.float64).unsqueeze(-1), form=form).squeeze(-1)
    assert (lengths.diff() > 0).all()


def test_unknown_form() -> None:
    with raises_about(ConfigError, "squash", "'cubic'"):
        squash(torch.zeros(2), form="cubic")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("form", ["standard", "half", "exponential"])
def test_squashed_length_matches_squash(form) -> None:
    vectors = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(squashed_length(vectors, form=form), squash(vectors, form=form).norm(dim=-1))
    assert torch.autograd.gradcheck(lambda v: squashed_length(v, form=form), vectors)
    zero = torch.zeros(3, requires_grad=True)
    squashed_length(zero, form=form).backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()
