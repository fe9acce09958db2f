"""`torchcaps data show`: statistics of a data set and a figure of some images of each class."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._args import read_options
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

SUFFIXES = (".png", ".pdf", ".svg")


def run(args: Namespace, out: Output) -> int:
    """Print the statistics of one split and save a figure of its images."""
    if not args.words or "=" in args.words[0]:
        raise ConfigError("data show: expected the name of a data set (`torchcaps data` lists them)")
    name = args.words[0]
    path = Path(args.out) if args.out is not None else Path(f"{Path(name).name}-{args.split}.png")
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out: expected a file name ending in {', '.join(SUFFIXES)}, got '{path}'")
    from torchcaps import viz
    from torchcaps._files import write_figure
    from torchcaps.data import describe, load_data

    data = load_data(name, args.split, **read_options(args.words[1:]))
    if len(data.image_shape) != 3:
        raise ConfigError(f"data: expected images to show, got samples of {data.image_shape} ('{name}')")
    summary = describe(data)
    sample = data.evenly_spaced(summary["counted"])
    # An image of two objects is shown with the class of the first.
    labels = sample.labels if data.num_labels == 1 else sample.labels[:, 0]  # [n]
    figure = viz.image_grid(sample.images, labels, data.class_names)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_figure(path, figure)
    out.document({**summary, "figure": path})
    channels, height, width = summary["image_shape"]
    pixels = summary["pixels"]
    out.say(f"{summary['name']}, {summary['split']}: {summary['images']:,} images", style="bold")
    out.facts(
        {
            "size": f"{height}x{width}, {channels} channel{'s' if channels > 1 else ''}",
            "pixels": f"{pixels['min']} to {pixels['max']}, mean {pixels['mean']}",
            "memory": f"{summary['megabytes']} MB",
            "origin": summary["origin"],
            **{name: f"{values[0]} to {values[-1]}" for name, values in summary["meta"].items() if values},
        }
    )
    counted = "images" if summary["counted"] == summary["images"] else f"of {summary['counted']:,} counted images"
    out.table(("class", counted), list(summary["classes"].items()))
    out.say(str(path))
    return 0
