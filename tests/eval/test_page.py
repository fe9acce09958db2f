from __future__ import annotations

from torchcaps.eval._page import POLICY, Section, flatten, page


def test_tables_are_flattened_and_what_is_not_there_left_out() -> None:
    rows = list(flatten({"a": {"b": {"c": 1 / 3}}, "none": None, "list": [1, 2], "empty": [], "yes": True}))
    assert rows == [("a.b.c", "0.333333"), ("list", "1, 2"), ("yes", "yes")]


def test_a_section_without_a_picture_has_words() -> None:
    text = page("t", "lead", {}, [Section("Coupling", "Left out: <none>.")], {})
    assert '<h2>Coupling</h2>\n<p class="muted">Left out: &lt;none&gt;.</p>' in text
    assert "<img" not in text


def test_a_section_may_have_a_table() -> None:
    text = page("t", "lead", {}, [Section("Numbers", "", lines=[["a", "b"], ["<1>", "2"]])], {})
    assert '<thead>\n<tr><th scope="col">a</th><th scope="col">b</th></tr>\n</thead>' in text
    assert "<tr><td>&lt;1&gt;</td><td>2</td></tr>" in text


def test_the_browser_is_told_to_load_nothing() -> None:
    assert f'content="{POLICY}"' in page("t", "lead", {}, [], {})
    assert POLICY.startswith("default-src 'none'")


def test_light_and_dark_are_both_there() -> None:
    assert "prefers-color-scheme: dark" in page("t", "lead", {}, [], {})
