"""`torchcaps show`: a picture of what a trained network learned."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb
from torchcaps.cli._words import add_run
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.train import Run
    from torchcaps.viz import Figure

SUFFIXES = (".png", ".pdf", ".svg")
# Enough images to find right and wrong ones among; only the confusion matrix needs all.
ENOUGH = 512


def _configure(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--what",
        required=True,
        metavar="PICTURE",
        help="reconstructions, perturbations, coupling, diagnostics, routing_curves, curves, confusion, "
        "transformations or phases",
    )
    parser.add_argument("--out", metavar="FILE", help="a .png, .pdf or .svg file (default: in the run's pictures)")


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.eval import PICTURES
    from torchcaps.train import Run

    run = Run.open(args.run)
    # An unknown picture is named before any work is done.
    _ = PICTURES[args.what]
    path = Path(args.out) if args.out is not None else run.pictures / f"{args.what}.png"
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out: expected a file that ends in {', '.join(SUFFIXES)}, got '{path}'")
    figure = _draw(run, args.what, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    out.document({"run": run.path, "what": args.what, "path": path})
    out.say(str(path))
    return 0


def _draw(run: Run, what: str, out: Output) -> Figure:
    from torchcaps import viz
    from torchcaps.eval import Subject, draw, evaluate

    # Curves are there while a run is still going on, and need neither model nor data.
    if what == "curves":
        return viz.curves(run.metrics())
    if what == "routing_curves":
        history = run.diagnostics()
        if not history:
            raise ConfigError(
                f"run: expected one that was watched while it learned, got '{run.path}' "
                "(it has no diagnostics.csv; --what diagnostics looks at it as it is now)"
            )
        return viz.routing_curves(history)
    model, data = run.load_model(), run.load_data("test")
    if what != "confusion":
        data = data.subset(range(min(ENOUGH, len(data))))
    with out.progress("testing") as progress:
        evaluation = evaluate(model, data, progress=progress)
    return draw(what, Subject(model, evaluation, run.metrics())).figure


VERB = Verb(
    name="show",
    summary="draw what a trained network learned",
    description="Draws one picture of a run: reconstructions (right and wrong ones), perturbations (what each "
    "dimension of a class capsule stands for), coupling (how routing comes to agree, iteration by "
    "iteration), diagnostics (what routing does in each layer), routing_curves (the same, epoch by epoch), curves "
    "(loss and accuracy while training), confusion (which class is taken for which), transformations (of a "
    "transforming auto-encoder) or phases (of oscillators), and says where it is.",
    examples=(
        ("torchcaps show runs/NAME --what reconstructions", "what the capsules hold of an image"),
        ("torchcaps show runs/NAME --what coupling --out routing.svg", "routing, as a drawing that scales"),
        ("torchcaps show runs/NAME --what curves", "how training goes, also while it is going on"),
    ),
    configure=_configure,
    run=_run,
)
