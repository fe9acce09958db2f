"""The scripts of a release, and the contents and bytes of what it publishes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import torchcaps

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
LICENCES = ("LICENSE", "LICENSES/CC-BY-SA-3.0.txt", "NOTICE")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch):
    """Import a script by name."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))

    def load(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    return load


def test_readme_of_the_index_has_absolute_links_to_files_that_exist(scripts) -> None:
    readme = scripts("absolute_readme")
    text = readme.dynamic_metadata({}, PROJECT)["readme"]["text"]
    repository = PROJECT["urls"]["Repository"]
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 5
    for target in targets:
        assert target.startswith(("https://", "#")), target
        path = re.fullmatch(rf"{repository}/(?:raw|blob)/v{VERSION}/([^#]*)(?:#.*)?", target)
        if path:
            assert (ROOT / path[1]).exists(), target


def test_picture_inside_a_link_is_absolute(scripts) -> None:
    text = scripts("absolute_readme").absolute("[![a](b.png)](c.md)", "https://h/p", "v1")
    assert text == "[![a](https://h/p/raw/v1/b.png)](https://h/p/blob/v1/c.md)"


def test_address_of_the_project_is_written_once() -> None:
    owner = re.sub(r"/torchcaps$", "", PROJECT["urls"]["Repository"])
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = [
        name
        for name in files
        if name.endswith((".py", ".md", ".yml", ".toml", ".cff", ".html", ".js"))
        if f"{owner}/torchcaps" in (ROOT / name).read_text(encoding="utf-8")
    ]
    assert found == ["pyproject.toml"]


def test_version_is_the_same_everywhere() -> None:
    assert torchcaps.__version__ == VERSION
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()


def test_lowest_versions_are_those_of_the_project(scripts) -> None:
    lowest = scripts("lowest_versions").lowest()
    assert {"torch", "numpy", "safetensors", "lightning"} <= set(lowest)
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(lowest[requirement.name])


def test_bill_of_materials_lists_what_is_installed(scripts) -> None:
    bill = scripts("make_sbom").make_sbom()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    names = {entry["name"] for entry in bill["components"]}
    assert {"torch", "numpy", "safetensors", "lightning", "optuna"} <= names
    # A package of the developers only.
    assert not names & {"pytest", "ruff", "torchcaps"}
    references = {entry["bom-ref"] for entry in [bill["metadata"]["component"], *bill["components"]]}
    assert len(references) == len(names) + 1
    assert {entry["ref"] for entry in bill["dependencies"]} == references
    assert {child for entry in bill["dependencies"] for child in entry["dependsOn"]} <= references
    assert json.dumps(bill) == json.dumps(scripts("make_sbom").make_sbom())


def wheel_names(kernel: str | None) -> list[str]:
    info = f"torchcaps-{VERSION}.dist-info/licenses"
    package = ["py.typed", "data/digits.idx.xz", "pretrained/smallnorb.toml", *([kernel] if kernel else [])]
    return [*(f"torchcaps/{name}" for name in package), *(f"{info}/{name}" for name in LICENCES)]


def write_wheel(file: Path, names: list[str]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "")


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The files of a release that has nothing wrong, apart from their contents."""
    for platform in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_11_0_arm64", "macosx_11_0_x86_64"):
        write_wheel(tmp_path / f"torchcaps-{VERSION}-py3-none-{platform}.whl", wheel_names("_kernels.so"))
    write_wheel(tmp_path / f"torchcaps-{VERSION}-py3-none-win_amd64.whl", wheel_names("_kernels.dll"))
    needed = ("CMakeLists.txt", "csrc/portable.cpp", "scripts/absolute_readme.py", "tests/test_readme.py", "PKG-INFO")
    with tarfile.open(tmp_path / f"torchcaps-{VERSION}.tar.gz", "w:gz") as archive:
        for name in (*needed, *LICENCES):
            archive.addfile(tarfile.TarInfo(f"torchcaps-{VERSION}/{name}"), io.BytesIO())
    return tmp_path


def test_good_release_has_no_problem(scripts, release: Path) -> None:
    assert scripts("check_release").check_folder(release, VERSION) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda names: [name for name in names if "_kernels" not in name], "expected _kernels.so"),
        (lambda names: [name for name in names if "CC-BY-SA" not in name], "expected LICENSES/CC-BY-SA-3.0.txt"),
        (lambda names: [*names, "torchcaps/pretrained/smallnorb.safetensors"], "research only"),
        (lambda names: [*names, "tests/test_readme.py"], "the package alone"),
    ],
)
def test_bad_wheel_is_found(scripts, release: Path, change, problem: str) -> None:
    file = release / f"torchcaps-{VERSION}-py3-none-macosx_11_0_arm64.whl"
    write_wheel(file, change(wheel_names("_kernels.so")))
    (found,) = scripts("check_release").check_folder(release, VERSION)
    assert file.name in found
    assert problem in found


def test_missing_platform_is_found(scripts, release: Path) -> None:
    (release / f"torchcaps-{VERSION}-py3-none-win_amd64.whl").unlink()
    problems = scripts("check_release").check_folder(release, VERSION)
    assert any("one wheel for win_amd64, got 0" in problem for problem in problems)


def test_tag_changelog_and_address_are_checked(scripts) -> None:
    check = scripts("check_release").check_version
    project = {"version": "1.2.0", "urls": {"Repository": "https://host/me/torchcaps"}}
    assert check("v1.2.0", project, "## 1.2.0 (2027-01-31)\n") == []
    problems = check("v1.3.0", {**project, "urls": PROJECT["urls"]}, "## 1.2.0 (unreleased)\n")
    assert [problem.partition(":")[0] for problem in problems] == ["tag", "CHANGELOG.md", "pyproject.toml"]


def build(source: Path, out: Path) -> list[Path]:
    """Build sdist and wheel; without kernels, which are built by other tests and take a minute."""
    command = [sys.executable, "-m", "build", "--no-isolation", "-C", "wheel.cmake=false", "--outdir", out, source]
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(command, check=True, capture_output=True, env=env)
    return sorted(out.iterdir())


@pytest.mark.slow
def test_sdist_and_wheel_are_complete_and_reproducible(scripts, tmp_path: Path) -> None:
    check = scripts("check_release")
    copy = tmp_path / "another folder"
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    # The exclusions of git hold in a clone only.
    subprocess.run(["git", "init", "-q", copy], check=True)
    first, second = build(copy, tmp_path / "first"), build(copy, tmp_path / "second")
    wheel, sdist = first
    assert check.check_wheel(wheel, VERSION, None) == []
    assert check.check_sdist(sdist, VERSION) == []
    assert wheel.name == f"torchcaps-{VERSION}-py3-none-any.whl"
    assert [hashlib.sha256(file.read_bytes()).hexdigest() for file in first] == [
        hashlib.sha256(file.read_bytes()).hexdigest() for file in second
    ]
    twine = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *first], capture_output=True, text=True)
    assert twine.returncode == 0, twine.stdout
