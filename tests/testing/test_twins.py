import pytest
import torch

from torchcaps.testing import assert_matches

X = torch.randn(50, generator=torch.Generator().manual_seed(1))


def test_a_faithful_twin_passes_in_both_precisions() -> None:
    for dtype in (torch.float32, torch.float64):
        assert_matches(lambda x, y: (x + y) ** 2, lambda x, y: x * x + 2 * x * y + y * y, [X, X.flip(0)], dtype=dtype)


def test_an_input_may_be_missing() -> None:
    assert_matches(lambda x, y: x * 2, lambda x, y: x + x, [X, None])


@pytest.mark.parametrize(
    ("twin", "words"),
    [
        (lambda x: x * 1.0001, "result: expected an error of at most"),
        (lambda x: x * float("nan"), "result: expected an error of at most .*, got nan"),
        (lambda x: x.detach() * 2 - x, "gradient of input 0: expected an error of at most"),
        (lambda x: x[:-1], r"result: expected \(50,\), got \(49,\)"),
    ],
)
def test_an_unfaithful_twin_fails(twin, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        assert_matches(twin, lambda x: x + 0, [X])
