"""Draw the figure of the README from a trained run: `python scripts/make_demo_figure.py RUN`.

Top: test digits and the decodings of their class capsules. Bottom: decodings of one capsule with one dimension at a
time changed, for the dimensions with the largest effect.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.evaluation import perturb
from torchcaps.train import Run

ROOT = Path(__file__).resolve().parent.parent
ROWS, COLUMNS = 5, 11


@torch.no_grad()
def draw(run: Run) -> viz.Figure:
    """Draw the first correctly classified digits of the test split."""
    model, data = run.load_model(), run.load_data("test")
    images = to_float(data.images)  # [N, 1, 28, 28]
    capsules = model(images)
    correct = (capsules.activations.argmax(dim=-1) == data.labels).nonzero().squeeze(1)
    shown = correct[: 3 * COLUMNS : 3]
    decoded = model.decode(type(capsules)(capsules.poses[shown], capsules.activations[shown]))
    one = shown[0:1]
    perturbed = perturb(model, type(capsules)(capsules.poses[one], capsules.activations[one]))  # [16, 11, 1, 28, 28]
    change = (perturbed[:, -1] - perturbed[:, 0]).abs().flatten(1).sum(dim=-1)  # [16]
    rows = [images[shown], decoded, *perturbed[change.argsort(descending=True)[:ROWS].sort().values]]
    figure = viz.Figure(figsize=(COLUMNS, len(rows) + 0.3), dpi=100, layout="none")
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            gap = 0.3 if y > 1 else 0.0
            position = (x / COLUMNS, 1 - (y + 1 + gap) / (len(rows) + 0.3), 0.97 / COLUMNS, 0.97 / (len(rows) + 0.3))
            axes = figure.add_axes(position)
            axes.imshow(image.squeeze(0), cmap="gray", vmin=0, vmax=1)
            axes.axis("off")
    return figure


if __name__ == "__main__":
    target = ROOT / "docs" / "images" / "demo.png"
    target.parent.mkdir(exist_ok=True)
    draw(Run.open(sys.argv[1])).savefig(target)
    print(target)
