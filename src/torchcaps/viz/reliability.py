"""Reliability diagram: does a confidence of 90 % mean that 90 % are correct?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import FAINT, INK, LABEL, MUTED, TITLE, line_style, new_figure, style_axes

# Confidence, accuracy and number of images of each bin that is not empty.
Bins = Sequence[tuple[float, float, int]]


def reliability(curves: Mapping[str, Bins]) -> Figure:
    """Draw accuracy over confidence, and below it the share of the images at each confidence.

    The area of a mark grows with the share of the images.

    Args:
        curves: Bins by label, as `evaluation.reliability_bins` returns them.

    Returns:
        The figure.

    Raises:
        ConfigError: If there is no bin.

    Example:
        >>> len(reliability({"T = 1": [(0.55, 0.6, 10), (0.95, 0.9, 90)]}).axes)
        2
    """
    if not any(curves.values()):
        raise ConfigError("curves: expected at least one bin, got 0")
    figure = new_figure(4.6, 4.8)
    upper, lower = (style_axes(axes) for axes in figure.subplots(2, 1, height_ratios=(3, 1), sharex=True))
    upper.plot([0, 1], [0, 1], color=FAINT, linewidth=1.2)
    for number, (label, bins) in enumerate(curves.items()):
        confidence, accuracy, counts = zip(*bins, strict=True)
        style = line_style(number)
        total = sum(counts)
        shares = [count / total for count in counts]
        upper.plot(confidence, accuracy, label=label, **{**style, "linewidth": 0.8, "markersize": 2})
        # A bin of few images says little, and is a small mark.
        sizes = [8 + 160 * share for share in shares]
        upper.scatter(confidence, accuracy, sizes, marker=style["marker"], color=style["color"], zorder=3)
        lower.plot(confidence, shares, **style)
    upper.set(xlim=(0, 1), ylim=(0, 1.02))
    upper.set_title("Accuracy at each confidence", **TITLE)
    upper.set_ylabel("correct", **LABEL)
    upper.annotate("calibrated", (0.06, 0.1), rotation=45, fontsize=8, color=MUTED)
    lower.set_ylim(bottom=0)
    lower.set_ylabel("images", **LABEL)
    lower.set_xlabel("confidence: probability of the predicted class", **LABEL)
    for axis in (upper.yaxis, lower.yaxis, lower.xaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    upper.legend(frameon=False, fontsize=8, labelcolor=INK, loc="best")
    return figure
