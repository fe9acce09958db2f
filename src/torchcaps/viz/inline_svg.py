"""Figures as SVG inside of an HTML page, in the colours of the page."""

from __future__ import annotations

import html
import io
import re

import matplotlib
from matplotlib.figure import Figure

from torchcaps.viz._style import ACCENT, DPI, FAINT, INK, MUTED, WARM

# Variables of the page, which has other values in dark mode.
VARIABLES = {INK: "--ink", MUTED: "--muted", FAINT: "--line", ACCENT: "--accent", WARM: "--warm", "#ffffff": "--card"}


def inline_svg(figure: Figure, name: str, alt: str) -> str:
    """Return a figure as an SVG element for an HTML page.

    Texts stay texts, so that the browser draws them with its own fonts. The colours of the style become the CSS
    variables `--ink`, `--muted`, `--line`, `--accent`, `--warm` and `--card` of the page.

    Args:
        figure: The figure.
        name: Name of the figure, which makes its identifiers unique in the page.
        alt: Description for readers who cannot see it.

    Returns:
        The element.

    Example:
        >>> from torchcaps.viz import curves
        >>> element = inline_svg(curves({"epoch": [1.0], "train_loss": [0.5]}), "curves", "Loss")
        >>> element.startswith('<svg role="img" aria-label="Loss"'), "var(--ink)" in element
        (True, True)
    """
    buffer = io.StringIO()
    # Without a date, equal figures give equal pages.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # An element of an HTML page needs no names of XML.
    text = re.sub(r' xmlns(?::\w+)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    # These count from 1 in every figure; identifiers that are referred to are hashes.
    text = re.sub(r' id="[\w.]+_\d+"', "", text)
    for colour, variable in VARIABLES.items():
        text = re.sub(rf"((?:fill|stroke|stop-color): ){colour}\b", rf"\1var({variable})", text)
    return f'<svg role="img" aria-label="{html.escape(alt)}"' + text[len("<svg") :]
