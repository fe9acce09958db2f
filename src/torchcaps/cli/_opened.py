"""The network that a command is given: a run, a file, or bundled weights."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchcaps.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torchcaps.evaluation import Rejection
    from torchcaps.models import ImageModel


class OpenedNetwork(NamedTuple):
    """A trained network with its origin, its class names, the number of labels per image and a folder for results."""

    origin: dict[str, Any]
    about: str | None
    model: ImageModel
    class_names: Sequence[str]
    num_labels: int
    folder: Path
    rejection: Rejection | None = None


def open_network(verb: str, path: str | None, pretrained: str | None) -> OpenedNetwork:
    """Load the network of a run folder, of a .safetensors or .onnx file, or bundled weights; it classifies images."""
    if (path is None) == (pretrained is None):
        got = "neither" if path is None else f"both ('{path}', '{pretrained}')"
        raise ConfigError(f"{verb}: expected RUN or --pretrained NAME, got {got}")
    if path is None:
        opened = _open_pretrained(str(pretrained))
    else:
        opened = {".onnx": _open_onnx, ".safetensors": _open_weights}.get(Path(path).suffix, _open_run)(path)
    if not opened.model.is_classifier:
        spec = opened.model.spec
        name = type(opened.model).__name__ if spec is None else spec.name
        raise ConfigError(f"{verb}: expected a classifier, got {name}")
    return opened


def _open_onnx(path: str) -> OpenedNetwork:
    from torchcaps.integrations import OnnxModel

    model = OnnxModel(path)
    return OpenedNetwork({"file": path}, None, model, model.class_names, model.num_labels, Path("predictions"))


def _open_weights(path: str) -> OpenedNetwork:
    from torchcaps.models import load_described, read_description

    model, described = load_described(path), read_description(path)
    names, count = described.class_names, described.num_labels
    return OpenedNetwork({"file": path}, None, model, names, count, Path("predictions"))


def _open_run(path: str) -> OpenedNetwork:
    from torchcaps.evaluation import Rejection
    from torchcaps.train import Run

    run = Run.open(path)
    model, record = run.load_model(), run.record
    count, table = record["num_labels"], record.get("rejection")
    rejection = None if table is None else Rejection.from_json(table)
    folder = run.figures / "predictions"
    return OpenedNetwork({"run": run.path}, None, model, record["class_names"], count, folder, rejection)


def _open_pretrained(name: str) -> OpenedNetwork:
    from torchcaps.models import create_model, pretrained_card

    card = pretrained_card(name)
    model = create_model(card.model, pretrained=name)
    about = f"{name}: {card.about}"
    return OpenedNetwork({"pretrained": name}, about, model, card.class_names, card.num_labels, Path("predictions"))


def image_files(verb: str, args: Namespace) -> list[tuple[str, bool]]:
    """Return the image files of `RUN IMAGE...`, and whether each was named or is one of a folder."""
    from torchcaps.data import list_images

    images: list[tuple[str, bool]] = []
    for word in _words(verb, args):
        found = list_images(Path(word)) if Path(word).is_dir() else []
        if Path(word).is_dir() and not found:
            raise DataError(f"{word}: expected image files, but the folder has none")
        images += [(str(file), False) for file in found] or [(word, True)]
    return images


def _words(verb: str, args: Namespace) -> list[str]:
    """Return the files and folders; with --pretrained the first positional argument is one of them."""
    words = [] if args.run is None else [args.run, *args.images]
    if args.pretrained is None:
        missing = ["RUN", "IMAGE"][len(words) :]
        words = words[1:]
    else:
        missing = [] if words else ["IMAGE"]
        if words and (Path(words[0]) / "run.json").is_file():
            raise ConfigError(f"{verb}: expected a run or --pretrained, got both ('{words[0]}', '{args.pretrained}')")
    if missing:
        raise ConfigError(
            f"{verb}: expected {' and '.join(missing)} (or IMAGE with --pretrained NAME); see `torchcaps {verb} --help`"
        )
    return words


def check_takes_files(verb: str, shape: Sequence[int]) -> None:
    """Raise ConfigError unless a network takes the images of files."""
    channels = shape[0]
    if len(shape) != 3:
        raise ConfigError(f"{verb}: expected a network for images [C, H, W], got one for samples of {tuple(shape)}")
    if channels == 2:
        raise ConfigError(
            f"{verb}: expected a network for single images, got one for stereo pairs (a file holds one image)"
        )
    if channels not in (1, 3):
        raise ConfigError(f"{verb}: expected a network for 1 or 3 channels, got {channels} channels")
