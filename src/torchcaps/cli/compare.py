"""`torchcaps compare`: one network with every router."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._args import one_name
from torchcaps.cli._multi_run import ConsoleReporter, exit_code, report_stopped
from torchcaps.cli._recipe import open_recipe
from torchcaps.cli._submit import add_submit, submit
from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.experiments import Comparison


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RECIPE key=value",
        help="name or TOML file of a recipe (default: digits), and changes to it",
    )
    parser.add_argument(
        "--routers", default="all", metavar="NAMES", help="comma-separated names, or all (default: all)"
    )
    parser.add_argument(
        "--controls",
        default="",
        metavar="MODELS",
        help="comma-separated names of models without routing to train as well, such as backbone_linear",
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="number of runs of each router (default: 3)")
    parser.add_argument(
        "--test",
        action="append",
        default=[],
        metavar="'NAME key=value'",
        help="further test data, with options; may be repeated",
    )
    add_submit(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder (default: runs/compare-RECIPE)")


def _run(args: Namespace, out: Output) -> int:
    name, overrides = one_name(args.words, "recipe")
    from torchcaps.experiments import compare

    recipe, _ = open_recipe(name, overrides)
    folder = args.out or Path("runs") / f"compare-{recipe.name}"
    routers = [] if args.routers == "all" else [name.strip() for name in args.routers.split(",")]

    controls = [name.strip() for name in args.controls.split(",") if name.strip()]
    words = ["compare", *args.words, "--routers", args.routers, "--seeds", str(args.seeds)]
    words += ["--controls", args.controls] if controls else []
    words += [word for test in args.test for word in ("--test", test)]
    if (code := submit(args, words, folder, out)) is not None:
        return code
    try:
        with out.stdout_kept():
            result = compare(
                recipe,
                folder,
                routers=routers,
                controls=controls,
                seeds=args.seeds,
                tests=args.test,
                reporter=ConsoleReporter(out),
            )
    except KeyboardInterrupt:
        return report_stopped(words, folder, args.out, out)
    return report_stopped(words, folder, args.out, out) if result.status == "stopped" else _finish(result, folder, out)


def _finish(result: Comparison, folder: Path, out: Output) -> int:
    from torchcaps import viz
    from torchcaps._files import write_figure
    from torchcaps.experiments import compare_lines

    figure, document = folder / "compare.png", asdict(result)
    write_figure(figure, viz.comparison(document["rows"]))
    out.document({"folder": folder, "figure": figure, **document})
    header, *rows = compare_lines(result)
    recipe = result.recipe
    out.say(
        f"{recipe['model']['name']} on {recipe['data']['name']}; epochs: {recipe['trainer']['epochs']}; "
        f"runs of each router: {len(result.seeds)}",
        style="bold",
    )
    out.table(header, rows)
    if len(result.seeds) == 1 and (doubt := _doubt(result, folder)) is not None:
        out.say(doubt)
    out.facts({"table": folder / "compare.json", "figure": figure, "runs": folder})
    return exit_code(run.status for row in result.rows for run in row.runs)


def _doubt(result: Comparison, folder: Path) -> str | None:
    """Return the difference of accuracies that one run of each router cannot tell from chance."""
    from torchcaps.train import Run

    # All runs are tested on the same images.
    found = [Run.open(file.parent).results.get("test_images") for file in sorted(folder.glob("*/run.json"))]
    images = next(filter(None, found), None)
    accuracy = max((row.test_accuracy.mean for row in result.rows if row.test_accuracy is not None), default=None)
    if images is None or accuracy is None:
        return None
    points = 196 * (2 * accuracy * (1 - accuracy) / images) ** 0.5
    return (
        f"one run of each: differences of less than {points:.1f} points can be chance, with {images:,} test images "
        "(--seeds 3 gives deviations)"
    )


VERB = Verb(
    name="compare",
    summary="train one network with every router and compare them",
    description="Trains the network of a recipe with each router and several seeds, with the same data and budget. "
    "Each run has its own folder. Reports accuracy, time, peak memory of a training step, and routing statistics of "
    "the trained networks: entropy of the coupling into the classes (1 is uniform), fraction of predictions that "
    "uniform coupling would change, fraction of dead capsules, change of the logits per iteration, and gradient norm. "
    "Writes compare.json and compare.png. The same command resumes a stopped comparison; started several times, it "
    "shares the runs. A router that fails is "
    "reported with the reason.",
    examples=(
        ("torchcaps compare digits", "all routers, three runs of each"),
        ("torchcaps compare digits --routers dynamic,em --seeds 5", "two routers, five runs of each"),
        (
            "torchcaps compare my/images --routers dynamic --controls backbone_linear",
            "do the capsules help? equal budget",
        ),
        ("torchcaps compare digits trainer.epochs=5 --out runs/short", "a changed recipe, in another folder"),
        ("torchcaps compare digits --submit slurm --workers 8 --slurm partition=cpu", "an array of eight jobs"),
    ),
    configure=_configure,
    run=_run,
    takes_overrides=True,
)
