"""The style of all figures: dark ink, one accent colour, one warm colour for errors.

The style is set on each figure. pyplot and the global settings of matplotlib are not used.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

# Blue and orange are distinguishable with every common kind of colour blindness, and in print.
INK, MUTED, FAINT = "#1f2933", "#5f6c7b", "#d9dfe6"
ACCENT, WARM = "#0f6292", "#c8550b"
# On cells of a colour map, which stay light or dark in every mode.
ON_LIGHT, ON_LIGHT_WARM, ON_DARK = "#202a34", "#c7540a", "#fefefe"
SHADES = LinearSegmentedColormap.from_list("torchcaps", ["#ffffff", "#cfe3ef", "#63a8cd", ACCENT])
# Orange below, white at, blue above a middle value.
DIVERGING = LinearSegmentedColormap.from_list("around", ["#d9762f", "#f5d9c3", "#ffffff", "#c9e0ee", ACCENT])
# Lines differ in colour, lightness and marker.
_LINES = ((ACCENT, "o"), (WARM, "s"), (INK, "^"), (MUTED, "D"), ("#c9a227", "v"))

DPI = 160
TITLE: dict[str, Any] = {"fontsize": 10.5, "color": INK, "loc": "left", "pad": 8}
LABEL: dict[str, Any] = {"fontsize": 9, "color": MUTED}
NOTE: dict[str, Any] = {"fontsize": 8, "color": MUTED}


# Fonts with Chinese, Japanese and Korean characters, as common systems have them.
_CJK = ("Noto Sans CJK", "Source Han Sans", "WenQuanYi", "Hiragino", "PingFang", "Yu Gothic", "Microsoft YaHei")
_CJK += ("Malgun Gothic", "Apple SD Gothic", "IPA", "Takao", "Droid Sans Fallback", "Arial Unicode")


class StyledFigure(Figure):
    """A figure whose texts fall back to installed fonts for characters that the default font does not have."""

    def draw(self, renderer: Any) -> None:
        """Draw the figure; a character that no font has is drawn as a box, without a warning.

        Args:
            renderer: Renderer of Matplotlib.
        """
        for text in self.findobj(Text):
            if isinstance(text, Text) and not text.get_text().isascii():
                text.set_fontfamily(["DejaVu Sans", *cjk_fonts()])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
            super().draw(renderer)


@cache
def cjk_fonts() -> tuple[str, ...]:
    """Return the names of installed fonts with Chinese, Japanese and Korean characters."""
    names = sorted({font.name for font in fontManager.ttflist})
    return tuple(name for wanted in _CJK for name in names if name.startswith(wanted))


def new_figure(width: float, height: float) -> Figure:
    """Return an empty white figure of this size in inches, with constrained layout."""
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1, wspace=0.04, hspace=0.04)
    return StyledFigure(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)


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
