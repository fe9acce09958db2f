"""The recipe of a command: a bundled one, a file, or one that is chosen for a folder of images or a file of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.train import FolderRecipe, Recipe

SKIP_BAD = "data.options.skip_bad=true"


def open_recipe(name: str | None, overrides: Sequence[str]) -> tuple[Recipe, FolderRecipe | None]:
    """Return the recipe of a command.

    Args:
        name: Name or TOML file of a recipe, a folder of images, or a `.ts`, `.npz` or `.npy` file. Default: digits.
        overrides: Changes to the recipe.

    Returns:
        The recipe, and what was found and chosen if it is for a folder of images or a file of arrays.

    Raises:
        ConfigError: If the name is empty, or the folder is that of a run.
    """
    from torchcaps.train import DEFAULT_RECIPE, choose_recipe, list_recipes, load_recipe
    from torchcaps.train.array_recipe import choose_array_recipe, is_array_file
    from torchcaps.train.folder_recipe import RECIPE, folder_path

    if name == "":
        raise ConfigError("recipe: expected a recipe or a folder of images, got ''")
    if name is not None and is_array_file(name):
        chosen = choose_array_recipe(name, overrides)
        return chosen.recipe, chosen
    data = [text.partition("=")[2].strip() for text in overrides if text.partition("=")[0].strip() == "data.name"]
    if (data[-1] if data else name) == RECIPE and (name or DEFAULT_RECIPE) in list_recipes():
        chosen = choose_recipe(folder_path(overrides), overrides, base=name or DEFAULT_RECIPE)
        return chosen.recipe, chosen
    if name is None or name in list_recipes() or not Path(name).is_dir():
        try:
            return load_recipe(name or DEFAULT_RECIPE, overrides), None
        except UnknownNameError as error:
            raise UnknownNameError(f"{error} (there is no folder of images '{name}' either)") from None
    if (Path(name) / "run.json").exists():
        raise ConfigError(
            f"recipe: expected a recipe or a folder of images, got the run '{name}' (--resume continues it)"
        )
    chosen = choose_recipe(name, overrides)
    return chosen.recipe, chosen


def show_choices(chosen: FolderRecipe, out: Output) -> None:
    """Print what was found in a folder, and what was chosen and why.

    Args:
        chosen: The chosen recipe.
        out: The output.
    """
    from torchcaps.train.folder_recipe import dump_value

    out.say("found", style="bold")
    out.facts(chosen.found)
    if chosen.choices:
        out.say("\nchosen; any of these can be overridden by key=value", style="bold")
        out.table(
            ("value", "reason"), [(f"{choice.key}={dump_value(choice.value)}", choice.why) for choice in chosen.choices]
        )


def choices_document(chosen: FolderRecipe | None) -> dict[str, Any]:
    """Return what was found and chosen for --json; empty for other recipes."""
    if chosen is None:
        return {}
    return {"found": chosen.found, "chosen": [choice._asdict() for choice in chosen.choices]}
