"""`torchcaps recipes`: list the recipes, or show one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="name or TOML file of a recipe")


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
    summary="list the recipes, or show one",
    description="Lists the recipes that `torchcaps train` knows by name. With a name, prints all its values as "
    "TOML. Each value can be overridden by a key=value argument of `torchcaps train`, or saved to a file and edited.",
    examples=(
        ("torchcaps recipes", "all recipes"),
        ("torchcaps recipes digits", "all values of one recipe"),
        ("torchcaps recipes digits > mine.toml", "a file to edit, for `torchcaps train mine.toml`"),
    ),
    configure=_configure,
    run=_run,
)
