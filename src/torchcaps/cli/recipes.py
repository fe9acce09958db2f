"""`torchcaps recipes`: what can be trained by name."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one recipe, by name or TOML file")


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.train import list_recipes, load_recipe

    if args.name is None:
        recipes = {name: load_recipe(name) for name in list_recipes()}
        out.document([{"name": name, "description": recipe.description} for name, recipe in recipes.items()])
        rows = [(name, recipe.model.name, recipe.data.name, recipe.description) for name, recipe in recipes.items()]
        out.table(("recipe", "model", "data", "description"), rows)
        return 0
    recipe = load_recipe(args.name)
    out.document(asdict(recipe))
    out.say(recipe.to_toml().rstrip())
    return 0


VERB = Verb(
    name="recipes",
    summary="list the recipes, or show all of one",
    description="Lists the recipes that `torchcaps train` knows by name. Given a name, shows the recipe with "
    "every value written out: each can be changed as a key=value word of `torchcaps train`, or saved "
    "to a file and edited.",
    examples=(
        ("torchcaps recipes", "all of them"),
        ("torchcaps recipes digits", "every value, as TOML"),
        ("torchcaps recipes digits > mine.toml", "the start of a recipe of your own"),
    ),
    configure=_configure,
    run=_run,
)
