"""The files that automation reads: their schemas, and that what they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PRE_COMMIT = ROOT / ".pre-commit-config.yaml"
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": [file for file in WORKFLOWS if file.stem != "release"],
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "feature")],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_match_their_schemas(schema: str) -> None:
    pytest.importorskip("check_jsonschema")
    files = [str(file) for file in SCHEMAS[schema]]
    kind = ["--default-filetype", "yaml"]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *kind, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", [*WORKFLOWS, PRE_COMMIT, ROOT / "RELEASING.md"], ids=lambda file: file.name)
def test_scripts_and_targets_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for name in re.findall(r"\b((?:scripts|weights|tests|tools)/[\w./*-]*[\w*])", text):
        assert list(ROOT.glob(name)), name
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets is not None
    for name in re.findall(r"\bmake ([a-z]\w*)", text):
        assert name in targets[1].split(), name


def test_workflows_use_only_tagged_actions_and_read_only_rights() -> None:
    for file in WORKFLOWS:
        text = file.read_text(encoding="utf-8")
        assert "permissions:\n  contents: read\n" in text, file.name
        for action in re.findall(r"uses: (\S+)", text):
            assert action.startswith("./") or re.search(r"@(v\d|release/v\d|[0-9a-f]{40}$)", action), action


def test_updates_wait_for_a_week() -> None:
    text = (GITHUB / "dependabot.yml").read_text(encoding="utf-8")
    assert text.count("package-ecosystem:") == text.count("default-days: 7") == 2


def test_matrix_has_the_versions_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r"Python :: 3\.\d+$", text)]
    assert versions[0] == project["requires-python"].removeprefix(">=")
    listed = ", ".join(f'"{version}"' for version in versions)
    assert f"python: [{listed}]" in (GITHUB / "workflows" / "tests.yml").read_text()
