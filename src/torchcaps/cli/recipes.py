"""`torchcaps recipes`: list the recipes, or show one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.train import Recipe


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
    out.say(explained_toml(recipe))
    return 0


def explained_toml(recipe: Recipe) -> str:
    """Return a recipe as TOML with a comment on each value.

    Args:
        recipe: The recipe.

    Returns:
        The text, which `torchcaps.train.parse_recipe` reads.
    """
    from torchcaps.cli._docstrings import described_names

    lines, owner = [], recipe
    for line in recipe.to_toml().rstrip().splitlines():
        if line.startswith("["):
            owner = recipe
            for part in line.strip("[]").split("."):
                owner = getattr(owner, part, None)
        meaning = described_names(type(owner)).get(line.partition(" = ")[0]) if is_dataclass(owner) else None
        lines.append(f"{line:<32} # {meaning}" if meaning else line)
    return "\n".join(lines)


VERB = Verb(
    name="recipes",
    summary="list the recipes, or show one",
    description="Lists the recipes that `torchcaps train` knows by name. With a name, prints all its values as "
    "TOML, with their meaning. Each value can be overridden by a key=value argument of `torchcaps train`, or saved to "
    "a file and edited.",
    examples=(
        ("torchcaps recipes", "all recipes"),
        ("torchcaps recipes digits", "all values of one recipe"),
        ("torchcaps recipes digits > mine.toml", "a file to edit, for `torchcaps train mine.toml`"),
    ),
    configure=_configure,
    run=_run,
)
