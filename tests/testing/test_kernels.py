import pytest
import torch

from torchcaps.testing import assert_matches_reference

X = torch.randn(50, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_kernel_passes(dtype: torch.dtype) -> None:
    def expanded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * x + 2 * x * y + y * y

    assert_matches_reference(lambda x, y: (x + y) ** 2, expanded, [X, X.flip(0)], dtype=dtype)


def test_input_may_be_none() -> None:
    assert_matches_reference(lambda x, y: x * 2, lambda x, y: x + x, [X, None])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda x: x * 1.0001, "^result: "),
        (lambda x: x * float("nan"), "^result: .* got nan"),
        (lambda x: x.detach() * 2 - x, "^gradient of input 0: "),
        (lambda x: x[:-1], r"result: expected \(50,\), got \(49,\)"),
    ],
)
def test_wrong_kernel_fails(kernel, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_matches_reference(kernel, lambda x: x + 0, [X])


def test_one_wrong_element_fails_by_maximum() -> None:
    values = torch.ones(4_000_000, dtype=torch.float64)
    # One error of sixteen roundings is far below the root mean square that is allowed.
    wrong = torch.zeros(4_000_000)
    wrong[7] = 16 * torch.finfo(torch.float32).eps
    with pytest.raises(AssertionError, match=r"result: .*\(maximum\)"):
        assert_matches_reference(lambda x: x + wrong.to(x.dtype), lambda x: x + 0, [values])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_summed_in_float32(dtype: torch.dtype) -> None:
    def summed(x: torch.Tensor) -> torch.Tensor:
        return x.float().cumsum(0)[-1:].to(x.dtype)

    def summed_narrow(x: torch.Tensor) -> torch.Tensor:
        total = x[:1]
        for part in x[1:].split(1):
            total = total + part
        return total

    # From 256 on, bfloat16 has no odd numbers; float16 from 2,048 on.
    values = torch.ones(2500)
    assert_matches_reference(summed, lambda x: x.sum(0, keepdim=True), [values], dtype=dtype)
    with pytest.raises(AssertionError, match=r"^result: "):
        assert_matches_reference(summed_narrow, lambda x: x.sum(0, keepdim=True), [values], dtype=dtype)
