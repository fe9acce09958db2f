from __future__ import annotations

import pytest

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.experiments import Dimension, parse_space
from torchcaps.experiments.space import combinations


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("optim.lr=log(1e-4,1e-2)", Dimension("optim.lr", [], "log", 1e-4, 1e-2)),
        ("optim.lr = log( 1e-4 , 1 )", Dimension("optim.lr", [], "log", 1e-4, 1.0)),
        ("a=uniform(-1,0.5)", Dimension("a", [], "uniform", -1.0, 0.5)),
        ("a=int(1,5)", Dimension("a", [], "int", 1, 5)),
        ("a=logint(16,256)", Dimension("a", [], "logint", 16, 256)),
        ("a=1,2,3", Dimension("a", ["1", "2", "3"])),
        ("a=dynamic, em", Dimension("a", ["dynamic", "em"])),
        ("a=[1, 2],[3]", Dimension("a", ["[1, 2]", "[3]"])),
        ("a={x = 1, y = 2},{x = 2}", Dimension("a", ["{x = 1, y = 2}", "{x = 2}"])),
        ('a="x,y",z', Dimension("a", ['"x,y"', "z"])),
    ],
)
def test_dimensions(text, expected):
    assert parse_space([text]) == ([expected], [])


@pytest.mark.parametrize("text", ["a=1", "a=[1, 2]", "a={x = 1, y = 2}", "a=name", "path=my/images (old)", "a=log"])
def test_one_value_is_an_override(text):
    assert parse_space([text]) == ([], [text])


@pytest.mark.parametrize(
    "text",
    ["a=log(0,1)", "a=log(2,1)", "a=log(1)", "a=int(1,2.5)", "a=uniform(x,1)", "a=1,,2", "a=1,1", "a=uniform(0,inf)"],
)
def test_wrong_ranges(text):
    with raises_about(ConfigError, "a:", text.partition("=")[2]):
        parse_space([text])


def test_key_twice():
    with raises_about(ConfigError, "a:", "two"):
        parse_space(["a=1,2", "a=int(1,3)"])


def test_combinations():
    space, _ = parse_space(["a=1,2", "b=x,y"])
    assert combinations(space) == [("1", "x"), ("1", "y"), ("2", "x"), ("2", "y")]
    assert combinations([*space, *parse_space(["c=int(1,2)"])[0]]) is None
