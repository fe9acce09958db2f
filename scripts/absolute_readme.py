"""The README for package indexes, which know no relative links: the build backend calls `dynamic_metadata`.

Links point to the files of the release's tag, pictures to their content. The address is that of the project in
pyproject.toml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
# ![text](target) and [text](target): the targets that are neither addresses nor places in the page itself.
LINK = re.compile(r"(!?)(\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\])\((?!https?:|#|mailto:)([^)\s]+)\)")


def absolute(text: str, repository: str, tag: str) -> str:
    """Return Markdown with absolute addresses for all relative links and pictures.

    Args:
        text: The Markdown.
        repository: Address of the project.
        tag: Tag or branch that the links point to.

    Returns:
        The Markdown with absolute links.

    Example:
        >>> absolute("![plot](a.png) [guide](b.md) [top](#top)", "https://host/me/it", "v1")
        '![plot](https://host/me/it/raw/v1/a.png) [guide](https://host/me/it/blob/v1/b.md) [top](#top)'
    """

    def replace(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        # A picture may be the label of a link.
        return (
            f"{picture}{absolute(label, repository, tag)}({repository}/{'raw' if picture else 'blob'}/{tag}/{target})"
        )

    return LINK.sub(replace, text)


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `readme` of the metadata."""
    text = absolute(README.read_text(encoding="utf-8"), project["urls"]["Repository"], f"v{project['version']}")
    return {"readme": {"content-type": "text/markdown", "text": text}}
