from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchcaps as tc
from raising import raises_about
from torchcaps import data, evaluation, models, nn, ops, testing, train, viz
from torchcaps._registry import Registry, nearest
from torchcaps.errors import ConfigError, UnknownNameError


@pytest.fixture
def pets() -> Registry[str]:
    pets = Registry[str]("pet")
    pets.add("dog", "woof")
    pets.add("cat", "meow")
    return pets


def test_names_are_sorted_and_filtered(pets: Registry[str]) -> None:
    assert pets.names() == ["cat", "dog"]
    assert pets.names("d*") == ["dog"]
    assert pets.names("bird*") == []
    assert list(pets) == ["cat", "dog"]


def test_patterns_are_exact_about_case(pets: Registry[str]) -> None:
    assert pets.names("D*") == []


def test_contains(pets: Registry[str]) -> None:
    assert "cat" in pets
    assert "cow" not in pets
    assert 3 not in pets


def test_register_returns_decorated_object() -> None:
    sounds = Registry[Callable[[], str]]("sound")

    @sounds.register("moo")
    def moo() -> str:
        return "moo"

    assert sounds["moo"] is moo
    assert moo() == "moo"


def test_duplicate_name_is_refused(pets: Registry[str]) -> None:
    with raises_about(ConfigError, "pet:", "got 'cat' (already registered)"):
        pets.add("cat", "purr")
    assert pets["cat"] == "meow"


def test_unknown_name_suggests_nearest(pets: Registry[str]) -> None:
    with raises_about(UnknownNameError, "unknown pet 'catt'", "cat") as caught:
        pets["catt"]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_unknown_name_lists_all(pets: Registry[str]) -> None:
    with raises_about(UnknownNameError, "unknown pet 'xyz'", "cat, dog"):
        pets["xyz"]


@pytest.mark.parametrize("value", [torch.zeros(2, 2), ["cat"], None])
def test_what_is_no_name_is_named_by_its_type(pets: Registry[str], value: Any) -> None:
    with raises_about(UnknownNameError, "pet: expected a name", type(value).__name__) as caught:
        pets[value]
    assert "\n" not in str(caught.value)


def test_empty_registry() -> None:
    with raises_about(UnknownNameError, "unknown pet 'cat'", "none"):
        Registry[str]("pet")["cat"]


def test_nearest_of_several() -> None:
    assert nearest("capsnet_smal", ["capsnet", "capsnet_small", "cnn_small"]) == "; did you mean 'capsnet_small'?"


PACKAGES = (data, evaluation, models, nn, ops, testing, train, viz)
REGISTRIES = {
    f"{package.__name__}.{name}": item
    for package in PACKAGES
    for name, item in vars(package).items()
    if isinstance(item, Registry)
}


@pytest.mark.parametrize("registry", REGISTRIES)
def test_every_registry_holds_something_and_teaches(registry: str) -> None:
    names = REGISTRIES[registry].names()
    assert names
    wrong = names[0] + "_"
    with raises_about(UnknownNameError, REGISTRIES[registry].kind, f"'{wrong}'", "did you mean"):
        REGISTRIES[registry][wrong]


def test_core_registries_exist() -> None:
    here = {name.removeprefix("torchcaps.") for name in REGISTRIES}
    assert here >= {"ops.ROUTINGS", "nn.ROUTERS", "nn.DECODERS", "nn.LOSSES", "models.MODELS"}


@pytest.mark.parametrize("number", [1, 2])
def test_names_of_a_test_are_forgotten(number: int) -> None:
    # The second time, the name is taken if the first time left it.
    tc.register_model("net_of_a_test")(models.MODELS["cnn_small"])
    assert "net_of_a_test" in models.list_models()
