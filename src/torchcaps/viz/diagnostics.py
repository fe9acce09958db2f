"""Routing statistics of every layer: entropy, logit change, unused parents, gradient norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import ACCENT, INK, LABEL, MUTED, NOTE, TITLE, WARM, new_figure, shorten, style_axes

# Layers from the image upwards; the class layer has the accent colour.
_BELOW = (MUTED, WARM, "#c9a227", INK)
# More bars are not readable; the largest are drawn.
BARS = 12


def diagnostics(layers: Sequence[Mapping[str, Any]], gradient_norms: Mapping[str, float | None]) -> Figure:
    """Draw routing diagnostics in four panels.

    Entropy of the coupling (1 is uniform) and mean logit change over the iterations; fractions of dead and starved
    parents; gradient norm of each layer.

    Args:
        layers: Statistics of each layer, as in the JSON of a diagnosis.
        gradient_norms: Gradient norm by layer name.

    Returns:
        The figure.

    Raises:
        ConfigError: If there are no layers.

    Example:
        >>> layer = {"name": "head", "entropy": [1.0, 0.8], "logit_change": [0.3], "dead": 0.0, "starved": 0.1}
        >>> len(diagnostics([layer], {"head": 0.5}).axes)
        4
    """
    if not layers:
        raise ConfigError("layers: expected at least one routing layer, got 0")
    figure = new_figure(8.4, 5.6)
    panels = figure.subplots(2, 2)
    colours = layer_colours(len(layers))
    _lines(style_axes(panels[0, 0]), layers, "entropy", 1, colours)
    panels[0, 0].set_title("Entropy of the coupling (1: uniform)", **TITLE)
    panels[0, 0].set_ylim(0, 1.05)
    panels[0, 0].legend(frameon=False, fontsize=8, labelcolor=INK)
    _lines(style_axes(panels[0, 1]), layers, "logit_change", 2, colours)
    panels[0, 1].set_title("Mean logit change", **TITLE)
    changes = [value for layer in layers for value in layer["logit_change"] if value is not None]
    panels[0, 1].set_ylim(0, 1.15 * max(changes, default=0.0) or 1.0)
    _unused(style_axes(panels[1, 0]), layers)
    _gradients(style_axes(panels[1, 1], grid=False), gradient_norms)
    return figure


def layer_colours(count: int) -> list[str]:
    """Return the colours of `count` layers, from the image upwards."""
    return [*(_BELOW[place % len(_BELOW)] for place in range(count - 1)), ACCENT]


def _lines(axes: Axes, layers: Sequence[Mapping[str, Any]], key: str, start: int, colours: Sequence[str]) -> None:
    drawn = False
    for layer, colour in zip(layers, colours, strict=True):
        points = [(start + place, value) for place, value in enumerate(layer[key]) if value is not None]
        if points:
            drawn = True
            label = shorten(layer["name"], 24)
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4, linewidth=1.6, label=label)
    if not drawn:
        axes.text(0.5, 0.5, "one iteration: no change", transform=axes.transAxes, ha="center", **NOTE)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.1, y=0.15)
    axes.set_xlabel("iteration", **LABEL)


def _unused(axes: Axes, layers: Sequence[Mapping[str, Any]]) -> None:
    places = range(len(layers))
    for shift, what, colour in ((-0.2, "dead", WARM), (0.2, "starved", MUTED)):
        shares = [layer[what] for layer in layers]
        axes.bar([place + shift for place in places], shares, 0.36, color=colour, label=what)
        for place, share in zip(places, shares, strict=True):
            axes.annotate(
                f"{share:.0%}", (place + shift, share), (0, 2), textcoords="offset points", ha="center", **NOTE
            )
    axes.set_xticks(places, [shorten(layer["name"], 16) for layer in layers])
    axes.set_xlim(-0.6, len(layers) - 0.4)
    axes.set_ylim(0, max(0.1, *(1.25 * layer[what] for layer in layers for what in ("dead", "starved"))))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Unused parents", **TITLE)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _gradients(axes: Axes, norms: Mapping[str, float | None]) -> None:
    positive = {name: norm for name, norm in norms.items() if norm}
    largest = sorted(positive, key=lambda name: -positive[name])[:BARS]
    names = [name for name in positive if name in largest]
    values = [positive[name] for name in names]
    axes.barh(range(len(names)), values, 0.6, color=ACCENT)
    for place, value in enumerate(values):
        axes.annotate(f"{value:.2g}", (value, place), (4, 0), textcoords="offset points", va="center", **NOTE)
    axes.set_yticks(range(len(names)), [shorten(name, 20) for name in names])
    # The layer next to the image is at the top.
    axes.invert_yaxis()
    if values:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.margins(x=0.25)
    axes.set_title("Gradient norm by layer", **TITLE)
