"""The style of all figures: dark ink, one accent colour, one warm colour for errors.

The style is set on each figure. pyplot and the global settings of matplotlib are not used.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

# Blue and orange are distinguishable with every common kind of colour blindness, and in print.
INK, MUTED, FAINT = "#1f2933", "#5f6c7b", "#d9dfe6"
ACCENT, WARM = "#0f6292", "#c8550b"
SHADES = LinearSegmentedColormap.from_list("torchcaps", ["#ffffff", "#cfe3ef", "#63a8cd", ACCENT])
# Orange below, white at, blue above a middle value.
DIVERGING = LinearSegmentedColormap.from_list("around", ["#d9762f", "#f5d9c3", "#ffffff", "#c9e0ee", ACCENT])
# Lines differ in colour, lightness and marker.
_LINES = ((ACCENT, "o"), (WARM, "s"), (INK, "^"), (MUTED, "D"), ("#c9a227", "v"))

DPI = 160
TITLE: dict[str, Any] = {"fontsize": 10.5, "color": INK, "loc": "left", "pad": 8}
LABEL: dict[str, Any] = {"fontsize": 9, "color": MUTED}
NOTE: dict[str, Any] = {"fontsize": 8, "color": MUTED}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty white figure of this size in inches, with constrained layout."""
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1, wspace=0.04, hspace=0.04)
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)


def style_axes(axes: Axes, *, grid: bool = True) -> Axes:
    """Apply the style: no box, no tick marks, a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=MUTED, labelsize=8, length=0, pad=4)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
    return axes


def hide_axes(axes: Axes) -> Axes:
    """Prepare axes for images: no box and no ticks."""
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=MUTED, labelsize=8, length=0, pad=2)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def line_style(number: int) -> dict[str, Any]:
    """Return the style of the n-th line: colour, marker and, after five lines, dashes.

    >>> line_style(0)["color"] == ACCENT
    True
    """
    colour, marker = _LINES[number % len(_LINES)]
    dashes = ("-", "--", ":")[number // len(_LINES) % 3]
    return {"color": colour, "marker": marker, "linestyle": dashes, "linewidth": 1.5, "markersize": 4}


def shorten(name: str, length: int = 12) -> str:
    """Shorten a name to fit on an axis, and escape `$`, which would start a formula.

    >>> shorten("a rather long class name")
    'a rather lo…'
    """
    short = name if len(name) <= length else f"{name[: length - 1]}…"
    return short.replace("$", r"\$")
