"""`torchcaps predict`: what a trained network says about image files."""

from __future__ import annotations

import itertools
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.cli._verb import Verb
from torchcaps.cli._words import add_run
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from torchcaps.cli._output import Output
    from torchcaps.models import ImageModel

TOP = 3


def _configure(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files of any common kind and any size")
    parser.add_argument("--invert", action="store_true", help="turn light and dark: for dark ink on white paper")
    parser.add_argument(
        "--out", metavar="DIR", help="where to write the reconstructions (default: pictures/predictions in the run)"
    )


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.train import Run

    run = Run.open(args.run)
    model = run.load_model()
    if not model.classifies:
        raise ConfigError(f"predict: expected a network that classifies, got {run.recipe.model.name}")
    names = run.record["class_names"]
    folder = Path(args.out) if args.out is not None else run.pictures / "predictions"
    predictions: list[dict[str, Any]] = []
    written: set[Path] = set()
    with out.progress("asking") as progress:
        for path in args.images:
            image, activations, decoded = _ask(model, path, args.invert)
            values = dict(zip(names, activations.tolist(), strict=True))
            top = sorted(values.items(), key=lambda item: -item[1])[:TOP]
            file = None if decoded is None else _write(_free(folder, Path(path).stem, written), image, decoded)
            predictions.append(
                {"image": path, "label": top[0][0], "top": top, "activations": values, "reconstruction": file}
            )
            progress(len(predictions), len(args.images))
    out.document({"run": run.path, "predictions": predictions})
    rows = [(entry["image"], *(f"{name} {share:.2f}" for name, share in entry["top"])) for entry in predictions]
    out.table(("image", "label", *["then"] * (len(rows[0]) - 2)), rows)
    if model.decoder is not None:
        out.say(f"what the network saw, and what its capsule holds: {folder}")
    return 0


def _ask(model: ImageModel, path: str, invert: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """The image as the network sees it [C, H, W], the activations [J], and the reconstruction [C, H, W], if any."""
    import torch

    from torchcaps.data import read_image, to_float

    image = to_float(read_image(path, model.image_shape, invert=invert))  # [C, H, W]
    with torch.inference_mode():
        capsules = model(image.unsqueeze(0))
        decoded = None if model.decoder is None else model.decode(capsules)[0]  # [C, H, W]
    return image, capsules.activations[0], decoded


def _free(folder: Path, stem: str, written: set[Path]) -> Path:
    """A file that this command has not written yet: images in different folders may have the same name."""
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    file = next(path for path in (folder / f"{name}.png" for name in names) if path not in written)
    written.add(file)
    return file


def _write(file: Path, image: Tensor, decoded: Tensor) -> Path:
    from torchcaps.viz import pair

    file.parent.mkdir(parents=True, exist_ok=True)
    pair(image, decoded).savefig(file)
    return file


VERB = Verb(
    name="predict",
    summary="ask a trained network about image files",
    description="Says which class each image shows and how active the capsules of the likeliest classes are; 1 is "
    "certain, 0 is absent, and with capsules they need not sum to 1. For networks with a decoder it "
    "writes a picture of what the network saw beside what the winning capsule holds of it. Images are "
    "scaled to the size that the network knows.",
    examples=(
        ("torchcaps predict runs/NAME digit.png", "a light digit on black, like MNIST"),
        ("torchcaps predict runs/NAME --invert scan1.jpg scan2.jpg", "dark ink on white paper"),
        ("torchcaps predict runs/NAME digit.png --json", "all activations, for a program"),
    ),
    configure=_configure,
    run=_run,
)
