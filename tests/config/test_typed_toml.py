from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raising import raises_about
from torchcaps.config import dump, override, parse_value
from torchcaps.config.typed_toml import _build, parse_toml
from torchcaps.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    width: int = field(default=1, metadata={"least": 1})
    rate: float = field(default=0.5, metadata={"above": 0})
    mode: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        if self.width == 13:
            raise ConfigError("width: expected a lucky number, got 13")


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    maybe: str | None = None
    on: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    many: list[Inner] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)


def problems_of(table: dict[str, Any]) -> list[str]:
    problems: list[str] = []
    built = _build(Outer, table, problems)
    assert (built is None) == bool(problems)
    return problems


def test_builds_nested_tables_and_converts_integers():
    problems: list[str] = []
    built = _build(Outer, {"name": "x", "inner": {"rate": 2}, "options": {"free": [1]}}, problems)
    assert built == Outer("x", Inner(rate=2.0), options={"free": [1]})
    assert built is not None
    assert type(built.inner.rate) is float


def test_lists_and_tables_of_one_kind():
    problems: list[str] = []
    built = _build(Outer, {"name": "x", "many": [{"width": 2}, {}], "rates": {"a": 1}}, problems)
    assert built == Outer("x", many=[Inner(width=2), Inner()], rates={"a": 1.0})
    assert built is not None
    assert type(built.rates["a"]) is float


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "name: expected a string, but the key is missing"),
        ({"name": 3}, "name: expected a string, got 3"),
        ({"name": "x", "innner": {}}, "unknown key 'innner'; did you mean 'inner'?"),
        ({"name": "x", "inner": {"widht": 1}}, "unknown key 'inner.widht'; did you mean 'inner.width'?"),
        ({"name": "x", "inner": 1}, "inner: expected a table, got 1"),
        ({"name": "x", "inner": {"width": 1.5}}, "inner.width: expected a whole number, got 1.5"),
        ({"name": "x", "inner": {"width": True}}, "inner.width: expected a whole number, got True"),
        ({"name": "x", "inner": {"width": 0}}, "inner.width: expected at least 1, got 0"),
        ({"name": "x", "inner": {"width": 13}}, "inner.width: expected a lucky number, got 13"),
        ({"name": "x", "inner": {"rate": 0}}, "inner.rate: expected a number above 0, got 0"),
        ({"name": "x", "inner": {"rate": float("nan")}}, "inner.rate: expected a number, got nan"),
        ({"name": "x", "inner": {"mode": "c"}}, "inner.mode: expected one of a, b, got 'c'"),
        ({"name": "x", "maybe": 1}, "maybe: expected a string, got 1"),
        ({"name": "x", "on": 1}, "on: expected true or false, got 1"),
        ({"name": "x", "options": 1}, "options: expected a table, got 1"),
        ({"name": "x", "many": {}}, "many: expected a list, got {}"),
        ({"name": "x", "many": [{}, {"width": 0}]}, "many[1].width: expected at least 1, got 0"),
        ({"name": "x", "many": [3]}, "many[0]: expected a table, got 3"),
        ({"name": "x", "rates": {"a": "b"}}, "rates.a: expected a number, got 'b'"),
    ],
)
def test_names_each_mistake(table, problem):
    assert problems_of(table) == [problem]


def test_reports_all_errors_at_once():
    assert len(problems_of({"nam": "x", "inner": {"width": 0, "rate": "fast", "mod": 1}, "on": 2})) == 6


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1e-3", 0.001), ("true", True), ('"1"', "1"), ("a/b", "a/b"), ("2026-01-02", "2026-01-02"), ("", "")],
)
def test_parse_value(text, value):
    assert parse_value(text) == value


def test_override_creates_tables():
    table: dict[str, Any] = {}
    override(table, "a.b.c = [1, 2]")
    assert table == {"a": {"b": {"c": [1, 2]}}}


def test_new_name_drops_old_options():
    table = {"options": {"routing": {"name": "dynamic", "iters": 3}, "decoder": "mlp"}, "data": {"name": "a", "b": 1}}
    override(table, "options.routing.name=dynamic")
    assert table["options"]["routing"] == {"name": "dynamic", "iters": 3}
    override(table, "options.routing.name=uniform")
    assert table["options"] == {"routing": {"name": "uniform"}, "decoder": "mlp"}
    # Outside of options the rest of a table does not belong to the name.
    override(table, "data.name=c")
    assert table["data"] == {"name": "c", "b": 1}


@pytest.mark.parametrize("text", ["lr", "=1", "a..b=1"])
def test_override_without_key_or_value(text):
    with raises_about(ConfigError, "override:", "key=value", f"'{text}'"):
        override({}, text)


def test_override_below_a_number():
    with raises_about(ConfigError, "override:", "'a.b'", "got 1", "'a.b.c=2'"):
        override({"a": {"b": 1}}, "a.b.c=2")


PLAIN = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
)
TREES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.", max_size=2), inner)),
    max_size=4,
)


@given(TREES)
def test_dump_round_trip(table):
    assert tomllib.loads(dump(table)) == table


def test_dump_leaves_none_out():
    assert dump({"a": None, "b": 1}) == "b = 1"


def test_dump_of_unsupported_values():
    with raises_about(ConfigError, "a.b:", "<object"):
        dump({"a": {"b": object()}})


@pytest.mark.parametrize("text", ["[" + ".".join(["a"] * 40_000) + "]", "a = 1\n" * 200_000])
def test_text_that_takes_long_is_refused(text: str) -> None:
    with raises_about(ConfigError, "recipe", "got more"):
        parse_toml(text, "recipe")
