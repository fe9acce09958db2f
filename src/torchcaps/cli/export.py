"""`torchcaps export`: write a trained network to a file that runs elsewhere."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.models import ImageModel

FORMATS = ("onnx", "pt2", "aoti")


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="folder of a finished run; or give --pretrained")
    parser.add_argument("--pretrained", metavar="NAME", help="bundled weights (`torchcaps models` lists them)")
    parser.add_argument(
        "--to",
        metavar="FORMAT",
        default="onnx",
        choices=FORMATS,
        help="onnx (default): for ONNX Runtime, in any language and in browsers; pt2: for torch.export.load; aoti: "
        "compiled by AOTInductor for this kind of machine, runs without Python",
    )
    parser.add_argument("--int8", action="store_true", help="weights as 8-bit integers, routing in float32 (onnx only)")
    parser.add_argument("--decoder", action="store_true", help="export the decoder too: an output `reconstruction`")
    parser.add_argument("--out", metavar="FILE", help="file to write (default: model.onnx or model.pt2 in the run)")


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.integrations import export

    origin, model, class_names, num_labels, folder = _open(args)
    suffix = "onnx" if args.to == "onnx" else "pt2"
    file = folder / f"{origin if args.pretrained else 'model'}.{suffix}" if args.out is None else Path(args.out)
    done = export(
        model,
        file,
        to=args.to,
        int8=args.int8,
        decoder=args.decoder,
        class_names=class_names,
        num_labels=num_labels,
    )
    out.document({**done._asdict(), "classes": list(class_names)})
    out.facts(
        {
            "file": done.path,
            "format": f"{done.format}{', int8' if args.int8 else ''}, {done.size / 1e6:.2f} MB",
            "input": f"images [B, {', '.join(map(str, model.image_shape))}], float32 from 0 to 1",
            "outputs": ", ".join(done.outputs),
            "verified": f"batches of 1, 2 and 7; activations differ by at most {done.difference:.1e}",
        }
    )
    if done.format == "onnx":
        out.say(f"try next: torchcaps predict {done.path} image.png")
    return 0


def _open(args: Namespace) -> tuple[str, ImageModel, Sequence[str], int, Path]:
    """Return the name, the network, its class names and number of labels, and the default folder."""
    if (args.run is None) == (args.pretrained is None):
        raise ConfigError("export: expected RUN or --pretrained NAME, got " + ("both" if args.run else "neither"))
    if args.pretrained is not None:
        from torchcaps.models import create_model, pretrained_card

        card = pretrained_card(args.pretrained)
        model = create_model(card.model, pretrained=args.pretrained)
        return args.pretrained, model, card.class_names, card.num_labels, Path()
    from torchcaps.train import Run

    run = Run.open(args.run)
    described = run.describe_model()
    return run.path.name, run.load_model(), described.class_names, described.num_labels, run.path


VERB = Verb(
    name="export",
    summary="write a trained network to a file that runs without torchcaps",
    description="Writes one file with the input `images` and the outputs `probabilities`, `activations` and `poses`; "
    "the batch size is free. Class names, image shape and temperature are stored in it. The file is written only if "
    "its results on batches of 1, 2 and 7 images are those of the network. Needs the extra `export`: "
    "pip install 'torchcaps[export]'.",
    examples=(
        ("torchcaps export runs/NAME", "ONNX, for ONNX Runtime"),
        ("torchcaps export runs/NAME --int8", "the same with 8-bit weights"),
        ("torchcaps export --pretrained mnist --out mnist.onnx", "bundled weights"),
        ("torchcaps export runs/NAME --to pt2 --decoder", "for torch.export.load, with the decoder"),
    ),
    configure=_configure,
    run=_run,
)
