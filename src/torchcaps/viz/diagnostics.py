"""What routing does in every layer of a network: entropy, change of logits, unused capsules, gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import ACCENT, INK, LABEL, MUTED, NOTE, TITLE, WARM, calm, new_figure, shorten

# Layers from the image upwards; the last one, that of the classes, has the accent colour.
_BELOW = (MUTED, WARM, "#c9a227", INK)
# More bars than this cannot be read: the largest are shown.
BARS = 12


def diagnostics(layers: Sequence[Mapping[str, Any]], gradient_norms: Mapping[str, float | None]) -> Figure:
    """Draw layers and gradient norms as `Diagnosis.to_json` gives them: four panels.

    Entropy of the coupling, 1 where it is even, and mean change of the logits, both over the iterations; the share of
    parents that are dead or starved; the length of the gradient in each layer's parameters.

    >>> layer = {"name": "head", "entropy": [1.0, 0.8], "logit_change": [0.3], "dead": 0.0, "starved": 0.1}
    >>> len(diagnostics([layer], {"head": 0.5}).axes)
    4
    """
    if not layers:
        raise ConfigError("layers: expected at least one routing layer, got none")
    figure = new_figure(8.4, 5.6)
    panels = figure.subplots(2, 2)
    colours = layer_colours(len(layers))
    _lines(calm(panels[0, 0]), layers, "entropy", 1, colours)
    panels[0, 0].set_title("Entropy of the coupling (1: even)", **TITLE)
    panels[0, 0].set_ylim(top=1.02)
    panels[0, 0].legend(frameon=False, fontsize=8, labelcolor=INK)
    _lines(calm(panels[0, 1]), layers, "logit_change", 2, colours)
    panels[0, 1].set_title("Mean change of the logits", **TITLE)
    panels[0, 1].set_ylim(bottom=0)
    _unused(calm(panels[1, 0]), layers)
    _gradients(calm(panels[1, 1], grid=False), gradient_norms)
    return figure


def layer_colours(count: int) -> list[str]:
    """The colours of so many layers, from the image upwards."""
    return [*(_BELOW[place % len(_BELOW)] for place in range(count - 1)), ACCENT]


def _lines(axes: Axes, layers: Sequence[Mapping[str, Any]], what: str, start: int, colours: Sequence[str]) -> None:
    drawn = False
    for layer, colour in zip(layers, colours, strict=True):
        points = [(start + place, value) for place, value in enumerate(layer[what]) if value is not None]
        if points:
            drawn = True
            label = shorten(layer["name"], 24)
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4, linewidth=1.6, label=label)
    if not drawn:
        axes.text(0.5, 0.5, "one pass: nothing changes", transform=axes.transAxes, ha="center", **NOTE)
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
    axes.set_title("Parents that are not used", **TITLE)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _gradients(axes: Axes, norms: Mapping[str, float | None]) -> None:
    found = {name: norm for name, norm in norms.items() if norm}
    largest = sorted(found, key=lambda name: -found[name])[:BARS]
    names = [name for name in found if name in largest]
    values = [found[name] for name in names]
    axes.barh(range(len(names)), values, 0.6, color=ACCENT)
    for place, value in enumerate(values):
        axes.annotate(f"{value:.2g}", (value, place), (4, 0), textcoords="offset points", va="center", **NOTE)
    axes.set_yticks(range(len(names)), [shorten(name, 20) for name in names])
    # The image enters above, and the classes leave below.
    axes.invert_yaxis()
    if values:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.margins(x=0.25)
    axes.set_title("Length of the gradient by layer", **TITLE)
