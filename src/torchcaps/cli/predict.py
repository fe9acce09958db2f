"""`torchcaps predict`: classify image files."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import sys
import warnings
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.cli._opened import OpenedNetwork, check_takes_files, image_files, open_network
from torchcaps.cli._verb import Verb
from torchcaps.errors import CheckpointError, ConfigError, DataError, WriteError

if TYPE_CHECKING:
    from torch import Tensor

    from torchcaps.cli._output import Output

TOP = 3
# The exit code if some images, but not all, cannot be read.
UNREADABLE = 3


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="folder of a run, its weights.safetensors, or an ONNX file of `torchcaps export`; or give --pretrained",
    )
    parser.add_argument(
        "images", nargs="*", metavar="IMAGE", help="image files of any common format and size, or folders of them"
    )
    parser.add_argument(
        "--pretrained", metavar="NAME", help="bundled weights instead of a run (`torchcaps models` lists them)"
    )
    parser.add_argument("--csv", action="store_true", help="print CSV: image, label and the activation of each class")
    parser.add_argument("--invert", action="store_true", help="invert light and dark, for dark ink on white paper")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder for the reconstructions (default: figures/predictions in the run; with --pretrained: predictions)",
    )


def _run(args: Namespace, out: Output) -> int:
    if args.csv and args.json:
        raise ConfigError("--csv: expected either --csv or --json, got both")
    images = image_files("predict", args)
    # With --pretrained the first positional argument is an image.
    classifier = open_network("predict", args.run if args.pretrained is None else None, args.pretrained)
    check_takes_files("predict", classifier.model.image_shape)
    folder = classifier.folder if args.out is None else Path(args.out)
    predictions: list[dict[str, Any]] = []
    bad: list[DataError] = []
    written: set[Path] = set()
    with out.progress("predicting") as progress:
        for path, named in images:
            try:
                image, activations, decoded, scores = _predict(classifier, path, args.invert)
            except DataError as error:
                bad.append(error)
                continue
            entry = _entry(classifier, path, activations, scores)
            file = None
            # A folder may hold thousands of images.
            if decoded is not None and (named or args.out is not None):
                file = _write(_free(folder, Path(path).stem, written), image, decoded, named=args.out is not None)
            predictions.append({**entry, "reconstruction": file})
            progress(len(predictions) + len(bad), len(images))
    if not predictions:
        raise bad[0] if len(bad) == 1 else DataError("\n".join(map(str, bad)))
    errors = [str(error) for error in bad]
    out.document({**classifier.origin, "predictions": predictions, "note": _note(classifier), "errors": errors})
    for error in bad:
        print(error, file=sys.stderr)
    if args.csv:
        print(_csv(classifier, predictions), end="")
        return UNREADABLE if bad else 0
    _show(classifier, predictions, folder, out)
    return UNREADABLE if bad else 0


def _entry(classifier: OpenedNetwork, path: str, activations: Tensor, scores: dict[str, float]) -> dict[str, Any]:
    from torchcaps.train import name_predictions

    if not activations.isfinite().all():
        raise CheckpointError(f"weights: expected finite activations, got NaN or infinity for '{path}'")
    (found,) = name_predictions(
        activations.unsqueeze(0), classifier.class_names, classifier.num_labels, classifier.model.temperature
    )
    # Without a temperature the probabilities are not calibrated, and activations say more.
    probabilities = None if classifier.model.temperature is None else found.probabilities
    top = sorted((probabilities or found.activations).items(), key=lambda item: -item[1])[:TOP]
    rejected = None if classifier.rejection is None else classifier.rejection.reason(scores)
    entry = {"image": path, "label": found.label, "labels": list(found.labels), "top": top}
    return {**entry, "activations": found.activations, "probabilities": probabilities, "rejected": rejected}


def _note(classifier: OpenedNetwork) -> str:
    """Say what the numbers are: calibrated probabilities, or activations and why."""
    if classifier.model.temperature is not None:
        return f"probabilities, calibrated on the validation split (temperature {classifier.model.temperature:.3g})"
    if classifier.num_labels > 1:
        return f"activations, not probabilities: an image has {classifier.num_labels} labels"
    return "activations, not probabilities: no temperature was fitted on a validation split"


def _show(classifier: OpenedNetwork, predictions: list[dict[str, Any]], folder: Path, out: Output) -> None:
    calibrated = classifier.model.temperature is not None
    shown = "{} {:.1%}" if calibrated else "{} {:.2f}"
    rows = [(entry["image"], *(shown.format(name, share) for name, share in entry["top"])) for entry in predictions]
    count = min(classifier.num_labels, len(rows[0]) - 1)
    out.table(("image", *["label"] * count, *["next"] * (len(rows[0]) - 1 - count)), rows)
    for entry in predictions:
        if entry["rejected"] is not None:
            out.say(f"{entry['image']}: probably none of the classes; {entry['rejected']}")
    out.say(_note(classifier))
    if classifier.about is not None:
        out.say(classifier.about)
    if any(entry["reconstruction"] is not None for entry in predictions):
        out.say(f"inputs and reconstructions: {folder}")


def _csv(classifier: OpenedNetwork, predictions: list[dict[str, Any]]) -> str:
    """Return the predictions as CSV: the image, its labels, and the activation of each class."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["image", *["label"] * classifier.num_labels, *classifier.class_names])
    for entry in predictions:
        activations = (f"{value:.6g}" for value in entry["activations"].values())
        table.writerow([entry["image"], *entry["labels"], *activations])
    return text.getvalue()


def _predict(
    classifier: OpenedNetwork, path: str, invert: bool
) -> tuple[Tensor, Tensor, Tensor | None, dict[str, float]]:
    """Return input [C, H, W], activations [J], reconstruction if there is a decoder, and the scores of `novelty`.

    The reconstruction is that of the predicted class [C, H, W], or those of the two predicted classes [2, C, H, W].
    """
    import torch

    from torchcaps.data import read_image, to_float
    from torchcaps.evaluation import novelty, predict_labels

    model = classifier.model
    image = to_float(read_image(path, model.image_shape, invert=invert))  # [C, H, W]
    decoded = None
    with torch.inference_mode():
        capsules = model(image.unsqueeze(0))
        if model.decoder is not None:
            labels = predict_labels(capsules.activations, classifier.num_labels).view(-1, 1)  # [labels, 1]
            decoded = torch.cat([model.decode(capsules, label) for label in labels])  # [labels, C, H, W]
            decoded = decoded[0] if classifier.num_labels == 1 else decoded
        scores = {name: float(score) for name, score in novelty(model, image.unsqueeze(0)).items()}
    return image, capsules.activations[0], decoded, scores


def _free(folder: Path, stem: str, written: set[Path]) -> Path:
    """Return a file that this command has not written yet; images in different folders may have the same name."""
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    file = next(path for path in (folder / f"{name}.png" for name in names) if path not in written)
    written.add(file)
    return file


def _write(file: Path, image: Tensor, decoded: Tensor, *, named: bool) -> Path | None:
    """Write a reconstruction; into a run that is read-only none is written, and the prediction is still printed."""
    from torchcaps._files import make_folder, write_figure
    from torchcaps.viz import reconstruction_pair

    try:
        # A folder that the user names may be a link; one in a run folder may not.
        if named:
            file.parent.mkdir(parents=True, exist_ok=True)
        else:
            make_folder(file.parent)
        write_figure(file, reconstruction_pair(image, decoded))
    except WriteError as error:
        if named or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        warnings.warn(f"{error}; no reconstruction is written (--out DIR names another folder)", stacklevel=2)
        return None
    return file


VERB = Verb(
    name="predict",
    summary="classify image files with a trained network",
    description="Prints the class of each image and the activations of the most likely classes: from 0 (absent) to 1 "
    "(present), and with capsules they need not sum to 1. If the network has a decoder, it also writes a figure with "
    "the input and its reconstruction from the predicted class. Images are resized to the input size of the network. A "
    "network that was trained on two digits per image names both. A folder stands for all images in it and its "
    "sub-folders. A file that cannot be read is reported, and the others are classified; the exit code is then 3.",
    examples=(
        ("torchcaps predict runs/NAME digit.png", "a light digit on black, like MNIST"),
        ("torchcaps predict runs/NAME --invert scan1.jpg scan2.jpg", "dark ink on white paper"),
        ("torchcaps predict --pretrained mnist digit.png", "with bundled weights"),
        ("torchcaps predict runs/NAME my/photos --csv > predictions.csv", "all images of a folder, as a table"),
    ),
    configure=_configure,
    run=_run,
)
