"""`torchcaps show`: a figure of a run."""

from __future__ import annotations

import errno
import warnings
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._args import add_run
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError, WriteError
from torchcaps.report.registry import ENTRIES

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

SUFFIXES = (".png", ".pdf", ".svg")
# Enough images to contain correct and wrong ones.
IMAGES = 512


def _configure(parser: ArgumentParser) -> None:
    add_run(parser)
    names = ", ".join(entry.name for entry in ENTRIES)
    parser.add_argument("--figure", required=True, metavar="NAME", help=f"one of {names}")
    parser.add_argument("--out", metavar="FILE", help="a .png, .pdf or .svg file (default: in the folder of the run)")


def _run(args: Namespace, out: Output) -> int:
    from torchcaps._files import make_folder, write_figure
    from torchcaps.report import FIGURES, FigureContext, draw_figure
    from torchcaps.train import Run

    run = Run.open(args.run)
    entry = FIGURES[args.figure]
    path = Path(args.out) if args.out is not None else run.figures / f"{entry.name}.png"
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out: expected a file that ends in {', '.join(SUFFIXES)}, got '{path}'")
    with out.progress("evaluating") as progress:
        context = FigureContext(run, limit=None if entry.whole_split else IMAGES, progress=progress)
        drawn = draw_figure(entry.name, {run.path.name: context})
    try:
        # A folder that the user names may be a link; one in a run folder may not.
        if args.out is None:
            make_folder(path.parent)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_figure(path, drawn.figure)
    except WriteError as error:
        if args.out is not None or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        # Of a run that is read-only, the figure goes to the working directory.
        path = Path(path.name)
        warnings.warn(f"{error}; writing '{path}'", stacklevel=2)
        write_figure(path, drawn.figure)
    out.document({"run": run.path, "figure": entry.name, "caption": drawn.caption, "path": path})
    out.say(str(path))
    return 0


VERB = Verb(
    name="show",
    summary="draw a figure of a run",
    description="Draws one figure of a run and prints the path of the file. "
    + "".join(f"{entry.name}: {entry.summary}. " for entry in ENTRIES).strip(),
    examples=(
        ("torchcaps show runs/NAME --figure reconstructions", "test images beside their decodings"),
        ("torchcaps show runs/NAME --figure coupling --out routing.svg", "routing, as a vector graphic"),
        ("torchcaps show runs/NAME --figure curves", "learning curves, also during training"),
    ),
    configure=_configure,
    run=_run,
)
