"""Shapes of input for models of signals, images and volumes, and which models are large."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from torchcaps.models import list_models, model_rank

# Large networks differ from the small ones of the same family in sizes alone.
LARGE = {"attention_capsnet", "capsnet", "cnn_baseline", "deep_capsnet", "matrix_capsnet", "matrix_capsnet_released"}


def mark_slow(names: Iterable[str], slow: Collection[str]) -> list[Any]:
    """Return the names as parameters of a test, some of them marked as slow."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


# Every model as a parameter; the large ones are slow.
by_name = pytest.mark.parametrize("name", mark_slow(list_models(), LARGE))


def fit_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an image (C, H, W) for a model by name: (C, H) for signals, (C, H, H, W) for volumes."""
    channels, height, width = shape
    return {1: (channels, height), 2: shape, 3: (channels, height, height, width)}[model_rank(name)]
