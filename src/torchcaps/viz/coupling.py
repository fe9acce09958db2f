"""Coupling, entropy and activations at every routing iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from torchcaps.diagnostics import coupling_entropy
from torchcaps.errors import ConfigError
from torchcaps.types import Trace
from torchcaps.viz._images import to_array
from torchcaps.viz._style import (
    ACCENT,
    DIVERGING,
    FAINT,
    LABEL,
    MUTED,
    NOTE,
    TITLE,
    hide_axes,
    new_figure,
    shorten,
    style_axes,
)

# More rows are not distinguishable in the maps.
GROUPS = 24


def coupling(trace: Trace, *, sample: int = 0, class_names: Sequence[str] | None = None) -> Figure:
    """Draw the routing of one sample of a trace.

    Top: one map per iteration with the coupling of the children (rows) to the parents (columns); blue is above the
    uniform coupling, orange below. Children are ordered by their final coupling to the most active parent and averaged
    in at most 24 groups. Bottom: the entropy of the coupling (`coupling_entropy`, 1 is uniform) and the activations of
    the parents.

    Args:
        trace: The trace.
        sample: Index in the batch.
        class_names: Names of the parents; numbers by default.

    Shape:
        A trace with coupling [R, B, I, J].

    Returns:
        The figure.

    Raises:
        ConfigError: If the sample is not in the batch or the number of names differs.

    Example:
        >>> from torchcaps import ops
        >>> len(coupling(ops.trace("dynamic", torch.randn(1, 12, 3, 4), iters=3)).axes)
        6
    """
    batch, parents = trace.activations.shape[1:]
    if not -batch <= sample < batch:
        raise ConfigError(f"sample: expected an index below the batch size {batch}, got {sample}")
    names = [str(index) for index in range(parents)] if class_names is None else list(class_names)
    if len(names) != parents:
        raise ConfigError(f"class_names: expected {parents} names, got {len(names)}")
    shares = trace.coupling[:, sample].detach()  # [R, I, J]
    activations = trace.activations[:, sample].detach()  # [R, J]
    winner = int(activations[-1].argmax())
    figure = new_figure(max(7.2, 1.2 + 2.1 * trace.iters), 6.4)
    above, below = np.asarray(figure.subfigures(2, 1, height_ratios=[1.35, 1]))
    _draw_maps(above, _group(shares, winner), names)
    left, right = below.subplots(1, 2)
    _draw_entropy(left, coupling_entropy(shares.unsqueeze(1)))
    _draw_activations(right, activations, names)
    return figure


def _group(shares: Tensor, winner: int) -> Tensor:
    """Order children [R, I, J] by their last coupling to the winner, and average them in groups [R, G, J]."""
    order = shares[-1, :, winner].argsort(descending=True)
    pieces = shares[:, order].tensor_split(min(GROUPS, len(order)), dim=1)
    return torch.stack([piece.mean(dim=1) for piece in pieces], dim=1)


def _draw_maps(figure: SubFigure, groups: Tensor, names: Sequence[str]) -> None:
    iters, _, parents = groups.shape
    uniform = 1 / parents
    # All iterations share the scale. Its span is at least a thousandth, so that noise is not amplified.
    span = max(1e-3, float((groups - uniform).abs().max()))
    low, high = max(uniform - span, 0.0), uniform + span
    norm = TwoSlopeNorm(uniform, low, high)
    panels = figure.subplots(1, iters, squeeze=False)[0]
    for number, axes in enumerate(panels):
        hide_axes(axes).imshow(to_array(groups[number]), cmap=DIVERGING, norm=norm, aspect="auto")
        axes.spines[:].set(visible=True, color=FAINT)
        axes.set_title(f"iteration {number + 1}", **TITLE)
        every = max(1, parents // 20)
        ticks = range(0, parents, every)
        upright = max(map(len, names)) > 2
        axes.set_xticks(ticks, [shorten(names[tick]) for tick in ticks], rotation=90 if upright else 0)
        if number == 0:
            axes.set_ylabel("children, by final coupling", **LABEL)
    bar = figure.colorbar(panels[0].images[0], ax=list(panels), fraction=0.05, pad=0.02, ticks=[low, uniform, high])
    bar.set_label("coupling", **LABEL)
    bar.outline.set_visible(False)
    bar.ax.set_yticklabels([f"{value:.3f}" for value in (low, uniform, high)])
    bar.ax.tick_params(colors=MUTED, labelsize=8, length=0)


def _draw_entropy(axes: Axes, entropy: Tensor) -> None:
    values, iterations = entropy.tolist(), range(1, len(entropy) + 1)
    style_axes(axes).plot(iterations, values, color=ACCENT, marker="o", markersize=4, linewidth=1.6)
    axes.axhline(1, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate("uniform", (1, 1), (-4, 4), textcoords="offset points", va="bottom", **NOTE)
    for iteration, value in list(zip(iterations, values, strict=True))[1:]:
        axes.annotate(f"{value:.4f}", (iteration, value), (0, -5), textcoords="offset points", va="top", **NOTE)
    # The whole range: a change in the third decimal is not a slope.
    axes.set_ylim(0, 1.14)
    axes.set_title("Entropy of the coupling (1: uniform)", **TITLE)
    _finish(axes, len(entropy))


def _draw_activations(axes: Axes, activations: Tensor, names: Sequence[str]) -> None:
    iters = len(activations)
    numbers = range(1, iters + 1)
    ranking: list[int] = activations[-1].argsort(descending=True).tolist()
    style_axes(axes)
    for place, parent in reversed(list(enumerate(ranking))):
        colour = ACCENT if place == 0 else MUTED if place == 1 else FAINT
        marker = "o" if place < 2 or iters == 1 else None
        axes.plot(numbers, activations[:, parent].tolist(), color=colour, marker=marker, markersize=4, linewidth=1.6)
        last = float(activations[-1, parent])
        # The second name would overlap the first if both are equally active.
        if place == 0 or (place == 1 and float(activations[-1].max()) - last > 0.07):
            axes.annotate(
                f"{shorten(names[parent])}  {last:.2f}",
                (iters, last),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=colour,
            )
    axes.set_ylim(0, 1.04)
    axes.set_title("Activation of each parent", **TITLE)
    _finish(axes, iters)


def _finish(axes: Axes, iters: int) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.75, iters + 0.5)
    axes.margins(y=0.2)
    axes.set_xlabel("iteration", **LABEL)
