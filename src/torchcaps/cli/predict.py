"""`torchcaps predict`: what a trained network says about image files."""

from __future__ import annotations

import itertools
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from torchcaps.cli._output import Output
    from torchcaps.models import ImageModel

TOP = 3


class Asked(NamedTuple):
    """Who is asked: where the network is from, what its classes are called, how many of them are in an image."""

    origin: dict[str, Any]
    about: str | None
    model: ImageModel
    class_names: Sequence[str]
    num_labels: int
    folder: Path


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="the folder of a run, as `torchcaps train` printed it, or --pretrained"
    )
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="image files of any common kind and any size")
    parser.add_argument(
        "--pretrained", metavar="NAME", help="in place of a run: weights that come along, as `torchcaps models` lists"
    )
    parser.add_argument("--invert", action="store_true", help="turn light and dark: for dark ink on white paper")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="where to write the reconstructions (default: pictures/predictions in the run; with --pretrained: "
        "predictions, here)",
    )


def _run(args: Namespace, out: Output) -> int:
    images = _images(args)
    asked = _open_pretrained(args.pretrained) if args.pretrained is not None else _open_run(args.run)
    _check_channels(asked.model.image_shape[0])
    folder = asked.folder if args.out is None else Path(args.out)
    predictions: list[dict[str, Any]] = []
    written: set[Path] = set()
    with out.progress("asking") as progress:
        for path in images:
            image, activations, decoded = _ask(asked, path, args.invert)
            values = dict(zip(asked.class_names, activations.tolist(), strict=True))
            top = sorted(values.items(), key=lambda item: -item[1])[:TOP]
            labels = [name for name, _ in top[: asked.num_labels]]
            file = None if decoded is None else _write(_free(folder, Path(path).stem, written), image, decoded)
            entry = {"image": path, "label": labels[0], "labels": labels, "top": top, "activations": values}
            predictions.append({**entry, "reconstruction": file})
            progress(len(predictions), len(images))
    out.document({**asked.origin, "predictions": predictions})
    rows = [(entry["image"], *(f"{name} {share:.2f}" for name, share in entry["top"])) for entry in predictions]
    told = min(asked.num_labels, len(rows[0]) - 1)
    out.table(("image", *["label"] * told, *["then"] * (len(rows[0]) - 1 - told)), rows)
    if asked.about is not None:
        out.say(asked.about)
    if asked.model.decoder is not None:
        out.say(f"what the network saw, and what its capsule holds: {folder}")
    return 0


def _images(args: Namespace) -> list[str]:
    """The images among the words: without a run, its place is taken by the first of them."""
    words = [] if args.run is None else [args.run, *args.images]
    if args.pretrained is None:
        missing = ["RUN", "IMAGE"][len(words) :]
        words = words[1:]
    else:
        missing = [] if words else ["IMAGE"]
        if words and (Path(words[0]) / "run.json").is_file():
            raise ConfigError(f"predict: expected a run or --pretrained, got both ('{words[0]}', '{args.pretrained}')")
    if missing:
        raise ConfigError(
            f"the following arguments are required: {', '.join(missing)} (after a run, or with --pretrained NAME); "
            f"see `torchcaps predict --help`"
        )
    return words


def _open_run(path: str) -> Asked:
    from torchcaps.train import Run

    run = Run.open(path)
    model, record = run.load_model(), run.record
    if not model.classifies:
        raise ConfigError(f"predict: expected a network that classifies, got {run.recipe.model.name}")
    # Runs of older versions do not say how many things are in an image.
    count = record.get("num_labels", 1)
    return Asked({"run": run.path}, None, model, record["class_names"], count, run.pictures / "predictions")


def _open_pretrained(name: str) -> Asked:
    from torchcaps.models import create_model, pretrained_card

    card = pretrained_card(name)
    model = create_model(card.model, pretrained=name)
    about = f"{name}: {card.about}"
    return Asked({"pretrained": name}, about, model, card.class_names, card.num_labels, Path("predictions"))


def _check_channels(channels: int) -> None:
    if channels == 2:
        raise ConfigError(
            "predict: expected a network for single images, got one for stereo pairs of a left and a right image: "
            "a file holds only one of them"
        )
    if channels not in (1, 3):
        raise ConfigError(f"predict: expected a network for images of 1 or 3 channels, got one for {channels}")


def _ask(asked: Asked, path: str, invert: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """The image as the network sees it [C, H, W], the activations [J], and what is decoded, if anything.

    That is the reconstruction from the most active class [C, H, W], or those from the two most active [2, C, H, W].
    """
    import torch

    from torchcaps.data import read_image, to_float
    from torchcaps.nn import answers

    model = asked.model
    image = to_float(read_image(path, model.image_shape, invert=invert))  # [C, H, W]
    decoded = None
    with torch.inference_mode():
        capsules = model(image.unsqueeze(0))
        if model.decoder is not None:
            said = answers(capsules.activations, asked.num_labels).view(asked.num_labels, 1)  # [labels, 1]
            decoded = torch.cat([model.decode(capsules, label) for label in said])  # [labels, C, H, W]
            decoded = decoded[0] if asked.num_labels == 1 else decoded
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
    "scaled to the size that the network knows. Networks trained on two digits in an image name both.",
    examples=(
        ("torchcaps predict runs/NAME digit.png", "a light digit on black, like MNIST"),
        ("torchcaps predict runs/NAME --invert scan1.jpg scan2.jpg", "dark ink on white paper"),
        ("torchcaps predict --pretrained mnist digit.png", "a network that comes with torchcaps"),
        ("torchcaps predict runs/NAME digit.png --json", "all activations, for a program"),
    ),
    configure=_configure,
    run=_run,
)
