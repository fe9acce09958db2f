from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_readme_starts_with_code() -> None:
    text = README.read_text()
    first = BLOCK.search(text)
    assert first is not None, "README.md: expected a block of python"
    assert text.count("\n") < 120
    assert text[: first.end()].count("\n") < 25
    assert 5 <= first[1].count("\n") <= 12


def test_readme_snippets_run() -> None:
    names: dict[str, object] = {}
    blocks = BLOCK.findall(README.read_text())
    assert blocks, "README.md: expected a block of python"
    # One after the other, as a reader would type them.
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
