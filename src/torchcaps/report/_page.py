"""The page of a report: one HTML file that contains its style and its figures."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


class Section(NamedTuple):
    """A heading with a figure, or with a text and a table whose first line is the header, or with names and values.

    A figure is an SVG element, which must come from `viz.inline_svg`, or the content of a PNG file.
    """

    title: str
    text: str
    alt: str = ""
    png: bytes | None = None
    lines: Sequence[Sequence[str]] = ()
    svg: str | None = None
    facts: Mapping[str, Any] | None = None


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys and formatted values of nested tables, without None and empty lists.

    >>> list(flatten({"data": {"name": "digits"}, "seed": 0}))
    [('data.name', 'digits'), ('seed', '0')]
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif value is not None and value != []:
            yield f"{prefix}{key}", _format(value)


def page(
    title: str,
    lead: str,
    facts: Mapping[str, str],
    sections: Sequence[Section],
    tables: Mapping[str, Mapping[str, Any]],
    *,
    notes: Sequence[str] = (),
    folded: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """Render an HTML document; the template escapes every value. Notes follow the facts, folded tables end the page."""
    return _template().render(
        title=title, lead=lead, facts=facts, notes=notes, sections=sections, tables=tables, folded=folded or {}
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(flatten=flatten, base64=lambda content: base64.b64encode(content).decode("ascii"))
    return environment.get_template("page.html.j2")


def _format(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_format, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
