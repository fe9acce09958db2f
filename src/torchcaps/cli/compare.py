"""`torchcaps compare`: one network with every router, several times each, side by side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.cli._several import exit_code, make_runs
from torchcaps.cli._verb import STOPPED, Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RECIPE key=value",
        help="the name or TOML file of a recipe (`torchcaps recipes` lists them; default: digits), and changes to it",
    )
    parser.add_argument(
        "--routers", default="all", metavar="NAMES", help="names with commas between them, or all (default: all)"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many runs of each router (default: 3)")
    parser.add_argument(
        "--test",
        action="append",
        default=[],
        metavar="'NAME key=value'",
        help="other data to test on as well, with its options; may be given several times",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder (default: runs/compare-RECIPE)")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def _run(args: Namespace, out: Output) -> int:
    names = [word for word in args.words if "=" not in word]
    if len(names) > 1:
        raise ConfigError(f"recipe: expected one name or file, got {', '.join(names)}")
    from torchcaps.bench import compare
    from torchcaps.train import DEFAULT_RECIPE, load_recipe

    recipe = load_recipe(names[0] if names else DEFAULT_RECIPE, [word for word in args.words if "=" in word])
    folder = args.out or Path("runs") / f"compare-{recipe.name}"
    routers = [] if args.routers == "all" else [name.strip() for name in args.routers.split(",")]

    def make(tell: Callable[[str], None]) -> dict[str, Any]:
        return compare(
            recipe,
            folder,
            routers=routers,
            seeds=args.seeds,
            tests=args.test,
            progress=out.shows_progress,
            tell=tell,
        )

    words = ["compare", *args.words, "--routers", args.routers, "--seeds", str(args.seeds)]
    words += [word for test in args.test for word in ("--test", test)]
    result = make_runs(make, args, words, folder, out)
    return STOPPED if result is None else _finish(result, folder, out)


def _finish(result: dict[str, Any], folder: Path, out: Output) -> int:
    from torchcaps import viz
    from torchcaps.bench import compare_lines

    picture = folder / "compare.png"
    viz.comparison(result["rows"]).savefig(picture)
    out.document({"folder": folder, "picture": picture, **result})
    header, *rows = compare_lines(result)
    recipe = result["recipe"]
    out.say(
        f"{recipe['model']['name']} on {recipe['data']['name']}; epochs: {recipe['trainer']['epochs']}; "
        f"runs of each router: {len(result['seeds'])}",
        style="bold",
    )
    out.table(header, rows)
    out.facts({"table": folder / "compare.json", "picture": picture, "runs": folder})
    return exit_code(result)


VERB = Verb(
    name="compare",
    summary="train one network with every router and set them side by side",
    description="Trains the network of a recipe with each router and several seeds: same stem, same data, same "
    "budget. Each is an ordinary run in the folder of the comparison. Tells accuracy, time, the peak memory of a "
    "training step, and what routing does: how undecided the coupling into the classes is (entropy, 1 is even), how "
    "many predictions would change with even coupling, how many capsules are dead, how far the logits move in an "
    "iteration, how long the gradient is. The table is kept as compare.json and drawn as compare.png. The same "
    "command goes on where it was stopped; a router that fails is told with its reason, and the others go on.",
    examples=(
        ("torchcaps compare digits", "all routers, three runs of each"),
        ("torchcaps compare digits --routers dynamic,em --seeds 5", "two of them, five runs of each"),
        ("torchcaps compare digits trainer.epochs=5 --out runs/short", "the recipe changed, in a folder of your own"),
    ),
    configure=_configure,
    run=_run,
)
