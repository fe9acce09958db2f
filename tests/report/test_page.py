from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from torchcaps.report._page import Section, _template, flatten, page

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_flatten_omits_empty_values() -> None:
    rows = list(flatten({"a": {"b": {"c": 1 / 3}}, "none": None, "list": [1, 2], "empty": [], "yes": True}))
    assert rows == [("a.b.c", "0.333333"), ("list", "1, 2"), ("yes", "yes")]


def test_section_without_figure() -> None:
    text = page("t", "lead", {}, [Section("Coupling", "Not available: <none>.")], {})
    assert '<h2>Coupling</h2>\n<p class="muted">Not available: &lt;none&gt;.</p>' in text
    assert "<img" not in text


def test_section_with_table() -> None:
    text = page("t", "lead", {}, [Section("Numbers", "", lines=[["a", "b"], ["<1>", "2"]])], {})
    assert '<thead>\n<tr><th scope="col">a</th><th scope="col">b</th></tr>\n</thead>' in text
    assert "<tr><td>&lt;1&gt;</td><td>2</td></tr>" in text


def test_every_value_is_escaped() -> None:
    evil = "<script>\"'&"
    figure = Section(evil, evil, evil, b"png")
    table = Section(evil, evil, lines=[[evil], [evil]])
    text = page(evil, evil, {evil: evil}, [figure, table], {evil: {evil: evil}})
    assert "<script" not in text
    # Title and heading, lead, fact (2), figure (3), section (4), table (3).
    assert text.count("&lt;script&gt;&#34;&#39;&amp;") == 15


def test_missing_values_are_errors() -> None:
    with pytest.raises(UndefinedError):
        _template().render(title="t")


def test_content_security_policy() -> None:
    assert f'content="{POLICY}"' in page("t", "lead", {}, [], {})


def test_light_and_dark_style() -> None:
    assert "prefers-color-scheme: dark" in page("t", "lead", {}, [], {})
