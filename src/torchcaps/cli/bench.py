"""`torchcaps bench`: speed and memory, compared with the usual implementations."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

RESULTS = Path("benchmarks") / "results"
# Apart from the results of all sizes, which they would replace.
FIRST = RESULTS / "first"
# Not one benchmark among others: it compares sizes, not candidates, and has a page of its own.
SCALING = "scaling"


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of benchmarks (default: all), or scaling")
    parser.add_argument("--quick", action="store_true", help="few rounds at one small size, for a first impression")
    parser.add_argument(
        "--first", action="store_true", help=f"only the sizes of the summary, with all rounds; results go to {FIRST}"
    )
    parser.add_argument(
        "--device",
        default="cpu",
        choices=("cpu", "cuda"),
        help="cuda: measure the Triton kernels of all routings, or of those named, against the bound of the GPU",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder of the results (default: {RESULTS}; --quick writes none)"
    )
    parser.add_argument(
        "--render", type=Path, metavar="DIR", help="measure nothing; write tables and figures of the results to DIR"
    )


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.bench import CASES, read_result, render, run_case, summary, write_result

    if args.device != "cpu":
        return _gpu(args, out)
    if args.names == [SCALING]:
        return _scaling(args, out)
    names = args.names or CASES.names()
    # Names are checked before the first benchmark runs.
    _ = [CASES[name] for name in names]
    if args.render is not None:
        if args.quick:
            raise ConfigError("--quick: expected without --render, got both")
        files = [(args.out or RESULTS) / f"{name}.json" for name in names]
        # Without names, all that are measured; if there are none, the first missing file is the error.
        measured = [file for file in files if args.names or file.exists()]
        results = [read_result(file) for file in measured or files]
        written = [path for result in results for path in render(result, args.render)]
        out.document({"written": written})
        out.say("\n".join(map(str, written)))
        return 0
    folder = args.out if args.quick else args.out or (FIRST if args.first else RESULTS)
    results = []
    for name in names:
        with out.progress(name) as progress, out.stdout_kept():
            result = run_case(name, quick=args.quick, first=args.first, progress=progress)
        results.append(result)
        header, *lines = summary(result)
        out.say(result["title"], style="bold")
        out.table(header, lines)
        if folder is not None:
            out.say(f"written to {write_result(result, folder)}")
    out.document({"results": results})
    return 0


def _gpu(args: Namespace, out: Output) -> int:
    """Measure the Triton kernels."""
    from torchcaps.bench.gpu import run_gpu, table
    from torchcaps.bench.run import write_result

    if args.render is not None:
        raise ConfigError("--device: expected without --render, got both (scripts/make_tables.py writes the tables)")
    with out.progress(args.device) as progress, out.stdout_kept():
        result = run_gpu(args.names, device=args.device, quick=args.quick, progress=progress)
    header, *lines = table(result)
    out.say(result["title"], style="bold")
    out.table(header, lines)
    folder = args.out if args.quick else args.out or RESULTS
    if folder is not None:
        out.say(f"written to {write_result(result, folder)}")
    out.document({"results": [result]})
    return 0


def _scaling(args: Namespace, out: Output) -> int:
    """Measure how cost grows, or write its page."""
    from torchcaps.bench import read_result, render_scaling, run_scaling, scaling_summary, write_result

    if args.render is not None:
        if args.quick:
            raise ConfigError("--quick: expected without --render, got both")
        written = render_scaling(read_result((args.out or RESULTS) / f"{SCALING}.json"), args.render)
        out.document({"written": written})
        out.say("\n".join(map(str, written)))
        return 0
    with out.progress(SCALING) as progress, out.stdout_kept():
        result = run_scaling(quick=args.quick, progress=progress)
    header, *lines = scaling_summary(result)
    out.say(result["title"], style="bold")
    out.table(header, lines)
    folder = args.out if args.quick else args.out or RESULTS
    if folder is not None:
        out.say(f"written to {write_result(result, folder)}")
    out.document({"results": [result]})
    return 0


VERB = Verb(
    name="bench",
    summary="compare speed and memory with the usual implementations",
    description="Compares every kernel with the reference first, and stops if they differ. Then the candidates take "
    "turns in one process, and the minimum and median of their times are reported. Peak memory is measured in a "
    "process for each candidate. A candidate that fails is reported with the reason.",
    examples=(
        ("torchcaps bench --quick", "a first impression in a minute"),
        ("torchcaps bench dynamic", "the DigitCaps layer over batch, children, parents and iterations"),
        ("torchcaps bench conv_em conv_kmeans --first", "kernel, recompute and reference at the first sizes"),
        ("torchcaps bench --device cuda", "the Triton kernels on a GPU, against its bound"),
        ("torchcaps bench --render docs/benchmarks", "the tables and figures of the docs, from the results"),
        ("torchcaps bench scaling", "how time and memory of every router grow, and what ImageNet would cost"),
    ),
    configure=_configure,
    run=_run,
)
