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
    from torchcaps.report import CaptionedFigure
    from torchcaps.train import Run

SUFFIXES = (".png", ".pdf", ".svg")
# Enough images to contain correct and wrong ones.
IMAGES = 512


def _configure(parser: ArgumentParser) -> None:
    add_run(parser)
    names = ", ".join(entry.name for entry in ENTRIES)
    parser.add_argument("--figure", metavar="NAME", help=f"one of {names} (default: all that the run can have)")
    parser.add_argument(
        "--out", metavar="FILE", help="a .png, .pdf or .svg file (default: in the folder of the run); with --figure"
    )


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.report import FIGURES, FigureContext, draw_figure
    from torchcaps.train import Run

    run = Run.open(args.run)
    if args.figure is None:
        return _show_all(run, args.out, out)
    entry = FIGURES[args.figure]
    path = Path(args.out) if args.out is not None else run.figures / f"{entry.name}.png"
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out: expected a file that ends in {', '.join(SUFFIXES)}, got '{path}'")
    with out.progress("evaluating") as progress:
        context = FigureContext(run, limit=None if entry.whole_split else IMAGES, progress=progress)
        drawn = draw_figure(entry.name, {run.path.name: context})
    path = _write(path, drawn, named=args.out is not None)
    out.document({"run": run.path, "figure": entry.name, "caption": drawn.caption, "path": path})
    out.say(str(path))
    return 0


def _show_all(run: Run, target: str | None, out: Output) -> int:
    """Draw every figure that the run can have."""
    from torchcaps.report import FigureContext, draw_figure

    if target is not None:
        raise ConfigError(f"--out: expected --figure NAME as well, got '{target}' (all figures go into the run)")
    drawn: dict[str, Path] = {}
    missing: dict[str, str] = {}
    with out.progress("evaluating") as progress:
        context = FigureContext(run, progress=progress)
        # Figures that compare runs are those of `compare` and `reproduce`.
        for entry in (entry for entry in ENTRIES if not entry.compares_runs):
            reason = entry.requires(context)
            if reason is not None:
                missing[entry.name] = reason
                continue
            figure = draw_figure(entry.name, {run.path.name: context})
            drawn[entry.name] = _write(run.figures / f"{entry.name}.png", figure, named=False)
    out.document({"run": run.path, "figures": drawn, "missing": missing})
    out.facts(drawn)
    for name, reason in missing.items():
        out.say(f"{name} is not available: {reason}")
    return 0


def _write(path: Path, drawn: CaptionedFigure, *, named: bool) -> Path:
    """Write a figure and return its file."""
    from torchcaps._files import make_folder, write_figure

    try:
        # A folder that the user names may be a link; one in a run folder may not.
        if named:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            make_folder(path.parent)
        write_figure(path, drawn.figure)
    except WriteError as error:
        if named or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        # Of a run that is read-only, the figure goes to the working directory.
        path = Path(path.name)
        warnings.warn(f"{error}; writing '{path}'", stacklevel=2)
        write_figure(path, drawn.figure)
    return path


VERB = Verb(
    name="show",
    summary="draw a figure of a run",
    description="Draws one figure of a run, or all, and prints the paths of the files. "
    + "".join(f"{entry.name}: {entry.summary}. " for entry in ENTRIES).strip(),
    examples=(
        ("torchcaps show runs/NAME", "all figures that the run can have"),
        ("torchcaps show runs/NAME --figure reconstructions", "test images next to their reconstructions"),
        ("torchcaps show runs/NAME --figure coupling --out routing.svg", "routing, as a vector graphic"),
        ("torchcaps show runs/NAME --figure curves", "learning curves, also during training"),
    ),
    configure=_configure,
    run=_run,
)
