"""Shapes of input for models of signals, images and volumes."""

from __future__ import annotations

from torchcaps.models import model_rank


def fit_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an image (C, H, W) for a model by name: (C, H) for signals, (C, H, H, W) for volumes."""
    channels, height, width = shape
    return {1: (channels, height), 2: shape, 3: (channels, height, height, width)}[model_rank(name)]
