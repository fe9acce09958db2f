"""Words that the project does not use: they have a standard term, see the glossary in CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The standard term for each pattern.
WORDS = {
    r"twins?": "kernel",
    r"keepers?": "callback",
    r"vitals": "diagnostics",
    r"hand(?:ed|s)? in": "register",
    r"so many": "a given number of",
    r"at hand": "available",
    r"com(?:e|es|ing) along": "bundled",
    r"go(?:es)? on\b(?! the)": "resume, continue",
    r"nobody|whoever": "(name the subject)",
    r"anew": "again",
    r"right answers?": "correct predictions",
    r"birthplace": "provenance",
    r"lacking": "unavailable, missing",
    r"told|said|asked": "reported, given",
    r"weighs?|settles?|sheets?": "weight, normalise, tile",
    r"wants?": "requires",
    r"contact sheet": "grid of images",
    r"errs": "misclassifies",
    r"(?:train|training|val|test) part": "split",
    r"in per cent": "in %",
    r"got no such": "but there is no such",
    r"(?-i:got none|got nothing)": "but there is none, but it is not set",
    r"speaks? to": "couples to",
    r"what (?:came|becomes|became) of": "(name the result)",
}
# Files in which a word has its ordinary meaning, with the reason.
ALLOWED = {
    "CHANGELOG.md": "lists the old names",
    "tests/test_words.py": "defines the list",
}
FOLDERS = ("src", "docs", "examples", "scripts", "tests", "csrc")
SUFFIXES = {".py", ".md", ".toml", ".js", ".html", ".j2", ".css", ".cpp", ".h", ".inl"}


def sources() -> list[Path]:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES]
    return [*files, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]


def occurrences() -> list[str]:
    pattern = re.compile(r"\b(?:" + "|".join(WORDS) + r")\b", re.IGNORECASE)
    found = []
    for file in sources():
        name = file.relative_to(ROOT).as_posix()
        if name in ALLOWED or "_build" in name or "/vendor/" in name:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            found += [f"{name}:{number}: {match[0]}" for match in pattern.finditer(line)]
    return found


def test_project_uses_the_words_of_the_glossary() -> None:
    assert occurrences() == []


def test_word_list_is_applied() -> None:
    pattern = re.compile(r"\b(?:" + "|".join(WORDS) + r")\b", re.IGNORECASE)
    for text in (
        "a fast twin",
        "data that is handed in",
        "What comes along",
        "the run goes on",
        "it errs",
        "the test part",
    ):
        assert pattern.search(text), text
    assert not pattern.search("goes on the left")
