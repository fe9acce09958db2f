"""The style of all figures: dark ink, one accent colour, one warm colour for errors.

The style is set on each figure. pyplot and the global settings of matplotlib are not used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from torchcaps.viz._fonts import DEFAULT, Numbers, fonts_for

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


class StyledFigure(Figure):
    """A figure whose texts fall back to installed fonts for characters that the default font does not have.

    Characters that no installed font has are drawn as numbers, which a line at the bottom explains. Texts of an SVG
    with `svg.fonttype` "none" stay as they are: the browser has fonts of its own.
    """

    def draw(self, renderer: Any) -> None:
        """Draw the figure.

        Args:
            renderer: Renderer of Matplotlib.
        """
        texts = [text for text in self.findobj(Text) if isinstance(text, Text) and not text.get_text().isascii()]
        fonts, missing = fonts_for(frozenset("".join(text.get_text() for text in texts)))
        for text in texts:
            text.set_fontfamily([DEFAULT, *fonts])
        if not missing:
            super().draw(renderer)
        elif isinstance(self.canvas, FigureCanvasSVG) and matplotlib.rcParams["svg.fonttype"] == "none":
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
                super().draw(renderer)
        else:
            numbers = Numbers(missing)
            for text in texts:
                numbers(text.get_text())
            with _numbered(renderer, numbers), self._explained(numbers):
                super().draw(renderer)

    @contextmanager
    def _explained(self, numbers: Numbers) -> Iterator[None]:
        """Keep a strip at the bottom for what the numbers stand for, at most a third of the figure."""
        width, height = self.get_size_inches()
        if height < 2:
            # The axes would have no room.
            yield
            return
        # Sizes in points: a line is 9 high, a character of this font about 4 wide.
        lines = numbers.legend(width=max(24, int(72 * width / 4)), most=max(1, int(72 * height / 3 / 9)))
        share = (len(lines) + 1) * 9 / 72 / height
        note = self.text(0.01, 0.01, "\n".join(lines), fontsize=6.5, color=MUTED, va="bottom")
        note.set_in_layout(False)
        layout = self.get_layout_engine()
        if isinstance(layout, ConstrainedLayoutEngine):
            layout.set(rect=(0, share, 1, 1 - share))
        try:
            yield
        finally:
            note.remove()
            if isinstance(layout, ConstrainedLayoutEngine):
                layout.set(rect=(0, 0, 1, 1))


@contextmanager
def _numbered(renderer: Any, numbers: Numbers) -> Iterator[None]:
    """Let a renderer measure and draw texts with numbers. The texts of the figure stay as they are."""
    draw, measure = renderer.draw_text, renderer.get_text_width_height_descent
    # Matplotlib itself replaces methods of a renderer for the time of a layout.
    before = dict(vars(renderer))
    renderer.draw_text = lambda gc, x, y, s, *rest, **named: draw(gc, x, y, numbers(s), *rest, **named)
    renderer.get_text_width_height_descent = lambda s, *rest, **named: measure(numbers(s), *rest, **named)
    try:
        yield
    finally:
        for name in ("draw_text", "get_text_width_height_descent"):
            if name in before:
                setattr(renderer, name, before[name])
            else:
                delattr(renderer, name)


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
