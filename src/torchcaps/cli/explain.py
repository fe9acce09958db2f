"""`torchcaps explain`: the pixels, samples or words, and the capsules that a prediction rests on."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.cli._opened import OpenedNetwork, check_takes_files, image_files, open_network
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from torchcaps.cli._output import Output

METHODS = ("routing", "ig", "gradcam", "random", "centre")
MOST = 12
CHILDREN = 8


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="folder of a run, or its weights.safetensors")
    parser.add_argument("images", nargs="*", metavar="IMAGE", help=f"image files, or folders of them; at most {MOST}")
    parser.add_argument("--pretrained", metavar="NAME", help="bundled weights instead of a run")
    parser.add_argument(
        "--test",
        metavar="NUMBERS",
        help="samples of the test split instead of image files, such as 0,5,12: images, signals, volumes or sentences",
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="routing",
        help="routing (default): coupling times activation, carried back through the capsule layers; ig: integrated "
        "gradients; gradcam: Grad-CAM, both with the extra `explain`; random, centre: controls",
    )
    parser.add_argument("--label", metavar="CLASS", help="the class to explain (default: the predicted one)")
    parser.add_argument("--invert", action="store_true", help="invert light and dark, for dark ink on white paper")
    parser.add_argument("--out", metavar="DIR", help="folder for figure and JSON (default: explanations)")


def _run(args: Namespace, out: Output) -> int:
    import torch

    from torchcaps._files import write_figure, write_text
    from torchcaps.evaluation import saliency
    from torchcaps.viz import explanation

    files = [] if args.test is not None else [file for file, _ in image_files("explain", args)]
    if len(files) > MOST:
        raise ConfigError(f"explain: expected at most {MOST} images, got {len(files)}")
    opened = open_network("explain", args.run if args.pretrained is None else None, args.pretrained)
    if not any(True for _ in opened.model.parameters()):
        raise ConfigError(f"explain: expected a run or weights, got '{args.run}' (an ONNX file has no gradients)")
    images, words, files = _test_samples(args) if args.test is not None else (_read(opened, args, files), None, files)
    with torch.no_grad():
        activations = opened.model(images).activations  # [B, J]
    labels = activations.argmax(dim=1) if args.label is None else _label(opened, args.label).expand(len(files))
    maps = saliency(opened.model, images, labels, args.method)
    names = [str(opened.class_names[label]) for label in labels.tolist()]
    entries = [
        {"image": file, "label": name, "activation": float(row[label]), "children": None}
        for file, name, row, label in zip(files, names, activations, labels.tolist(), strict=True)
    ]
    if args.method == "routing":
        _add_children(opened, images, labels, entries)
    folder = Path("explanations" if args.out is None else args.out)
    folder.mkdir(parents=True, exist_ok=True)
    figure, file = folder / f"{args.method}.png", folder / f"{args.method}.json"
    write_figure(figure, explanation(images, maps, names, words))
    if words is not None:
        entries = [{**entry, "words": sentence} for entry, sentence in zip(entries, words, strict=True)]
    full = [{**entry, "map": _rounded(found.tolist())} for entry, found in zip(entries, maps, strict=True)]
    write_text(file, json.dumps({"method": args.method, "explanations": full}, default=str) + "\n")
    document = {**opened.origin, "method": args.method, "explanations": entries, "figure": figure, "file": file}
    out.document(document)
    _show(entries, out)
    out.facts({"figure": figure, "maps": file})
    return 0


def _read(opened: OpenedNetwork, args: Namespace, files: list[str]) -> Tensor:
    """Return the images of files, [B, C, H, W]."""
    import torch

    from torchcaps.data import read_image, to_float

    shape = opened.model.image_shape
    try:
        check_takes_files("explain", shape)
    except ConfigError as error:
        raise ConfigError(f"{error}; --test 0,1,2 explains samples of the test split") from None
    return torch.stack([to_float(read_image(file, shape, invert=args.invert)) for file in files])


def _test_samples(args: Namespace) -> tuple[Tensor, list[list[str]] | None, list[str]]:
    """Return samples of the test split, the words of sentences, and a name for each."""
    import torch

    from torchcaps.data import sentence_words, to_float
    from torchcaps.evaluation import PretrainedRun
    from torchcaps.train import Run

    words = args.test.split(",")
    if args.images or (args.pretrained is not None and args.run is not None):
        raise ConfigError(f"--test: expected no image files beside it, got {', '.join(args.images) or args.run}")
    folder = str(args.run)
    if args.pretrained is None and not Path(folder).is_dir():
        raise ConfigError(f"--test: expected the folder of a run or --pretrained NAME, got '{folder}'")
    data = (Run.open(folder) if args.pretrained is None else PretrainedRun(args.pretrained)).load_data("test")
    if not all(word.strip().isdecimal() and int(word) < len(data) for word in words) or len(words) > MOST:
        raise ConfigError(f"--test: expected at most {MOST} numbers from 0 to {len(data) - 1}, got '{args.test}'")
    places = [int(word) for word in words]
    stored = data.batch(torch.tensor(places)).images
    return to_float(stored), sentence_words(data.name, stored), [f"test {place}" for place in places]


def _label(opened: OpenedNetwork, name: str) -> Tensor:
    import torch

    if name not in opened.class_names:
        raise ConfigError(f"--label: expected one of {', '.join(opened.class_names)}, got '{name}'")
    return torch.tensor(list(opened.class_names).index(name))


def _add_children(opened: OpenedNetwork, images: Tensor, labels: Tensor, entries: list[dict[str, Any]]) -> None:
    """Add the primary capsules that contribute most, with the class names of their coupling."""
    from torchcaps.evaluation import routing_relevance, strongest_children

    found = routing_relevance(opened.model, images, labels)
    for number, entry in enumerate(entries):
        entry["children"] = children = strongest_children(found, number, CHILDREN)
        for child in children:
            if child["coupling"] is not None:
                child["coupling"] = dict(zip(opened.class_names, child["coupling"], strict=True))


def _rounded(found: Any) -> Any:
    return round(found, 8) if isinstance(found, float) else [_rounded(each) for each in found]


def _show(entries: list[dict[str, Any]], out: Output) -> None:
    for entry in entries:
        out.say(f"{entry['image']}: {entry['label']}, activation {entry['activation']:.2f}", style="bold")
        if entry["children"] is None:
            continue
        rows = []
        for child in entry["children"]:
            place = ", ".join(map(str, child["place"]))
            name = entry["words"][child["type"]] if "words" in entry else child["type"]
            coupling = child["coupling"]
            most = "" if coupling is None else max(coupling, key=coupling.__getitem__)
            own = "" if coupling is None else f"{coupling[entry['label']]:.1%}"
            rows.append((name, place, f"{child['relevance']:.1%}", f"{child['activation']:.2f}", own, most))
        out.table(("capsule", "place", "relevance", "activation", "coupling", "most coupled to"), rows)


VERB = Verb(
    name="explain",
    summary="show the pixels and capsules that a prediction rests on",
    description="Writes a figure with each image above a map of its relevant pixels, and JSON with the maps. Signals, "
    "volumes and sentences are named by their number in the test split (--test). With the method `routing` it also "
    "lists the primary capsules that contribute most to the class: their share, their activation, and their coupling. "
    "`torchcaps eval RUN --protocol faithfulness` measures whether such maps are true.",
    examples=(
        ("torchcaps explain runs/NAME photo.png", "by routing"),
        ("torchcaps explain --pretrained mnist_dynamic digit.png --label 4", "why could it be a 4?"),
        ("torchcaps explain runs/NAME --test 0,5", "samples of the test split: signals, volumes, sentences"),
        ("torchcaps explain runs/NAME photo.png --method gradcam --out maps", "Grad-CAM instead"),
    ),
    configure=_configure,
    run=_run,
)
