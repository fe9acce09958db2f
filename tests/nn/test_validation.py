from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsConv2d, CapsLinear, ClassCaps, PrimaryCaps2d, PrimaryMatrixCaps2d


@pytest.mark.parametrize(
    ("make", "counts"),
    [
        (CapsLinear, {"in_caps": 6, "out_caps": 3, "in_dim": 8, "out_dim": 4}),
        (lambda **counts: CapsConv2d(kernel_size=3, **counts), {"in_caps": 4, "out_caps": 3}),
        (ClassCaps, {"in_caps": 4, "out_caps": 3}),
        (PrimaryCaps2d, {"in_channels": 4, "caps": 3, "dim": 8}),
        (PrimaryMatrixCaps2d, {"in_channels": 4, "caps": 3, "dim": 16}),
    ],
)
def test_zero_sizes_are_refused(make: Callable[..., nn.Module], counts: dict[str, int]) -> None:
    make(**counts)
    for name in counts:
        for value in (0, -2, 1.5, True):
            with raises_about(ConfigError, f"{name}:", value):
                make(**{**counts, name: value})
