"""The pages of the documentation: links, the words of commands, and the notebooks of the tutorials."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from torchcaps.cli._main import VERBS
from torchcaps.errors import ConfigError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts]
README = ROOT / "README.md"
NOTES = ("CONTRIBUTING", "RELEASING", "SECURITY")
TUTORIALS = [page for page in sorted((DOCS / "tutorials").glob("*.md")) if page.stem != "index"]
LINK = re.compile(r"(?<!\\)\]\((?!https?:|mailto:)([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [code for language, code in BLOCK.findall(page.read_text(encoding="utf-8")) if language in languages]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [README, *PAGES], ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_every_page_is_in_the_navigation() -> None:
    listed = set()
    for page in PAGES:
        for tree in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{entry}.md").resolve() for entry in entries}
    assert {name(page) for page in PAGES} - {name(page) for page in listed} == {"docs/index.md"} | GENERATED


# Pages without an entry of their own: their folder is written by `torchcaps bench --render`.
GENERATED = {name(page) for page in (DOCS / "benchmarks").glob("*.md")}


INLINE = re.compile(r"`torchcaps +([^`]+)`")


def commands(page: Path) -> list[str]:
    """Return the torchcaps commands of a page, without comments and with continued lines joined."""
    lines = "\n".join(blocks(page, "", "bash")).replace("\\\n", " ").splitlines()
    found = [line.partition(" # ")[0].partition(" #")[0].partition(" > ")[0].strip() for line in lines]
    return [line for line in found if line.startswith("torchcaps ")]


@pytest.mark.parametrize("page", [page for page in [README, *PAGES] if commands(page)], ids=name)
def test_commands_parse(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in commands(page):
        _, verb, *words = shlex.split(line.rstrip("& "))
        if verb in ("help", "--version", "-V", "--help"):
            continue
        assert verb in VERBS, line
        try:
            assert isinstance(VERBS[verb].parse(words), Namespace)
        except ConfigError as error:
            pytest.fail(f"{line}: {error}")


@pytest.mark.parametrize("page", [README, *PAGES, *(ROOT / f"{each}.md" for each in NOTES)], ids=name)
def test_commands_in_sentences_parse(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for line in INLINE.findall(text):
        verb, *words = shlex.split(" ".join(line.split()))
        assert verb in (*VERBS, "help"), line
        # The name alone stands for the command.
        if words and verb != "help":
            assert isinstance(VERBS[verb].parse(words), Namespace), line


@pytest.mark.parametrize("verb", VERBS)
def test_a_how_to_page_shows_every_command(verb: str) -> None:
    index = DOCS / "howto" / "index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))}
    shown = [line for page in linked if page.is_relative_to(DOCS) for line in commands(page)]
    assert any(line.split()[1] == verb for line in shown)


@pytest.mark.parametrize("page", TUTORIALS, ids=name)
def test_notebook_has_the_cells_of_its_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jupytext")
    pytest.importorskip("nbclient")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from run_tutorials import read_notebook

    stored = json.loads((ROOT / "notebooks" / f"{page.stem}.ipynb").read_text(encoding="utf-8"))
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in stored["cells"]]
    # `python scripts/run_tutorials.py` writes them again.
    assert sources == [(cell.cell_type, cell.source) for cell in read_notebook(page).cells]
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=name)
def test_tutorial_runs_as_a_notebook(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    command = [sys.executable, ROOT / "scripts" / "run_tutorials.py", tmp_path, page.stem]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / f"{page.stem}.ipynb").exists()
