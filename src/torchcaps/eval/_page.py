"""The report's page: plain HTML with its style and pictures inside, so that one file can be sent to anybody."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --muted: #5f6c7b; --line: #d9dfe6; --page: #fbfcfd; --card: #ffffff;
  --accent: #0f6292; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --muted: #9aa7b4; --line: #2f3a45; --page: #14191f; --card: #1b222a; --accent: #7cc0e8; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.75rem 0 .75rem; }
p { margin: .4rem 0; max-width: 46rem; }
.muted, figcaption { color: var(--muted); }
.facts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0 0; padding: 0; list-style: none; }
.facts li { flex: 1 1 8rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .8rem 1rem; }
.facts strong { display: block; font-size: 1.25rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.facts li:first-child strong { color: var(--accent); font-size: 2rem; line-height: 1.15; }
figure { margin: 0; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; background: #fff;
  border: 1px solid var(--line); border-radius: .6rem; }
figcaption { font-size: .9rem; margin-top: .5rem; max-width: 46rem; }
table { border-collapse: collapse; font-size: .9rem; }
.scroll { overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .3rem 1.5rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: 500; }
.grid th, .grid td { overflow-wrap: normal; padding-right: 1rem; }
""".strip()

# The page may load nothing at all but what it carries itself, whatever a class or recipe is called.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Section(NamedTuple):
    """A heading with a picture, or with words where there is none, and a table whose first line is its header."""

    title: str
    text: str
    alt: str = ""
    png: bytes | None = None
    lines: Sequence[Sequence[str]] = ()


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as rows of dotted keys and words; what is None or an empty list is left out.

    >>> list(flatten({"data": {"name": "digits"}, "seed": 0}))
    [('data.name', 'digits'), ('seed', '0')]
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif value is not None and value != []:
            yield f"{prefix}{key}", _words(value)


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def page(
    title: str, lead: str, facts: Mapping[str, str], sections: list[Section], tables: Mapping[str, Mapping[str, Any]]
) -> str:
    """A whole HTML document; every word that is handed in is escaped."""
    boxes = "\n".join(f"<li><strong>{escape(value)}</strong> {escape(name)}</li>" for name, value in facts.items())
    body = "\n".join([*map(_section, sections), *(_table(name, table) for name, table in tables.items())])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{STYLE}
</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="muted">{escape(lead)}</p>
<ul class="facts">
{boxes}
</ul>
{body}
</main>
</body>
</html>
"""


def _section(section: Section) -> str:
    heading = f"<h2>{escape(section.title)}</h2>"
    if section.png is None:
        words = f'<p class="muted">{escape(section.text)}</p>'
        return f"<section>\n{heading}\n{words}\n{_grid(section.lines)}</section>"
    source = f"data:image/png;base64,{base64.b64encode(section.png).decode('ascii')}"
    image = f'<img src="{source}" alt="{escape(section.alt)}">'
    caption = f"<figcaption>{escape(section.text)}</figcaption>"
    return f"<section>\n{heading}\n<figure>\n{image}\n{caption}\n</figure>\n</section>"


def _grid(lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return ""
    head, *rows = lines
    names = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f'<table class="grid">\n<thead>\n<tr>{names}</tr>\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>'
    return f'<div class="scroll">{table}</div>\n'


def _table(title: str, table: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>' for key, value in flatten(table)
    )
    return (
        f"<section>\n<h2>{escape(title)}</h2>\n"
        f'<div class="scroll"><table>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n</section>'
    )
