from __future__ import annotations

from torchcaps.train import list_recipes, load_recipe, parse_recipe


def test_all_recipes_are_listed(ask, ask_json) -> None:
    entries = ask_json("recipes")
    assert [entry["name"] for entry in entries] == list_recipes()
    code, out, _ = ask("recipes")
    assert code == 0
    assert all(entry["description"] in out for entry in entries)


def test_one_recipe_can_be_saved_and_used(ask, ask_json) -> None:
    code, out, _ = ask("recipes", "digits")
    assert code == 0
    assert parse_recipe(out) == load_recipe("digits")
    assert ask_json("recipes", "digits")["data"]["name"] == "digits"


def test_unknown_recipe(ask) -> None:
    assert ask("recipes", "digit") == (2, "", "unknown recipe 'digit'; did you mean 'digits'?\n")


def test_values_have_comments(ask) -> None:
    lines = ask("recipes", "digits")[1].splitlines()
    (epochs,) = [line for line in lines if line.startswith("epochs")]
    assert "# Largest number of epochs" in epochs
    (elastic,) = [line for line in lines if line.startswith("elastic")]
    assert "5x5 grid" in elastic
