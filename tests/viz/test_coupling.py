from __future__ import annotations

import numpy as np
import pytest
import torch

from raising import raises_about
from torchcaps import ops, viz
from torchcaps.diagnostics import coupling_entropy
from torchcaps.errors import ConfigError

VOTES = torch.randn(2, 30, 4, 5, generator=torch.Generator().manual_seed(0))


def test_maps_entropy_and_activations() -> None:
    trace = ops.trace("dynamic", VOTES, iters=2)
    first, last, _bar, entropy, activations = viz.coupling(trace, sample=1).axes
    np.testing.assert_allclose(np.asarray(first.images[0].get_array()), np.full((24, 4), 0.25), rtol=1e-6)
    groups = np.asarray(last.images[0].get_array())
    winner = int(trace.activations[-1, 1].argmax())
    assert (np.diff(groups[:, winner]) <= 1e-6).all()
    assert groups[:, winner].max() > 0.25
    np.testing.assert_allclose(groups.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(
        np.asarray(entropy.lines[0].get_ydata()), coupling_entropy(trace.coupling[:, 1:2]), rtol=1e-6
    )
    # The whole range: small differences are small.
    assert entropy.get_ylim()[0] == 0
    drawn = np.array([line.get_ydata() for line in activations.lines])  # [J, R], the winner last
    order = trace.activations[-1, 1].argsort()
    np.testing.assert_allclose(drawn, trace.activations[:, 1, order].T, rtol=1e-6)


def test_prediction_is_named() -> None:
    trace = ops.trace("dynamic", VOTES, iters=2)
    names = ["ant", "bee", "cow", "dog"]
    axes = viz.coupling(trace, class_names=names).axes[-1]
    winner = names[int(trace.activations[-1, 0].argmax())]
    assert axes.texts[-1].get_text().startswith(f"{winner}  ")


@pytest.mark.parametrize(("children", "parents", "iters"), [(1, 1, 1), (3, 2, 1), (5, 40, 5)])
def test_odd_sizes(children: int, parents: int, iters: int) -> None:
    trace = ops.trace("dynamic", torch.randn(1, children, parents, 3).requires_grad_(), iters=iters)
    figure = viz.coupling(trace)
    figure.canvas.draw()
    assert len(figure.axes) == iters + 3
    assert np.asarray(figure.axes[0].images[0].get_array()).shape == (children, parents)


def test_errors() -> None:
    trace = ops.trace("dynamic", VOTES, iters=1)
    with raises_about(ConfigError, "sample", 2):
        viz.coupling(trace, sample=2)
    with raises_about(ConfigError, "class_names", 1):
        viz.coupling(trace, class_names=["one"])
