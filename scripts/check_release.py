"""Check the files of a release: `python scripts/check_release.py TAG FOLDER`, with the standard library alone.

The tag is the version of pyproject.toml, CHANGELOG.md has its date, the address of the project is filled in, and FOLDER
has one sdist and one wheel per platform, each with its kernels and licences and without weights for research only.
"""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# How the names of the wheels end, and the name of the kernel in each.
PLATFORMS = {
    r"manylinux_2_\d+_x86_64": "_kernels.so",
    r"manylinux_2_\d+_aarch64": "_kernels.so",
    r"macosx_\d+_\d+_arm64": "_kernels.so",
    r"macosx_\d+_\d+_x86_64": "_kernels.so",
    r"win_amd64": "_kernels.dll",
}
LICENCES = ("LICENSE", "LICENSES/CC-BY-SA-3.0.txt", "NOTICE")


def check_version(tag: str, project: dict, changelog: str) -> list[str]:
    """Return what is wrong with the tag, the changelog and the address of the project."""
    version = project["version"]
    problems = [] if tag == f"v{version}" else [f"tag: expected v{version}, got {tag}"]
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        problems.append(f"CHANGELOG.md: expected a heading '## {version} (YYYY-MM-DD)', but there is none")
    if "OWNER" in str(project["urls"]):
        problems.append("pyproject.toml: expected the address of the project in [project.urls], got OWNER")
    return problems


def check_names(names: list[str], version: str) -> list[str]:
    """Return what is wrong with the contents of a wheel or sdist, of which the names are given."""
    kind = [name for name in names if name.endswith(".safetensors") and "smallnorb" in name]
    problems = [f"expected no weights for research only, got {name}" for name in kind]
    for licence in LICENCES:
        if not any(name.endswith(f"/{licence}") for name in names):
            problems.append(f"expected {licence}, which is missing")
    problems += [f"expected no {name}" for name in names if "__pycache__" in name or ".venv/" in name]
    return problems


def check_wheel(file: Path, version: str, kernel: str | None) -> list[str]:
    """Return what is wrong with a wheel; `kernel` is the file name of its library, None for a wheel without."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    problems = check_names(names, version)
    kernels = [name for name in names if name.startswith("torchcaps/_kernels.")]
    if kernels != ([f"torchcaps/{kernel}"] if kernel else []):
        problems.append(f"expected {kernel or 'no kernel'}, got {', '.join(kernels) or 'none'}")
    for name in ("torchcaps/py.typed", "torchcaps/data/digits.idx.xz", "torchcaps/pretrained/smallnorb.toml"):
        if name not in names:
            problems.append(f"expected {name}, which is missing")
    top = {name.partition("/")[0] for name in names}
    if top != {"torchcaps", f"torchcaps-{version}.dist-info"}:
        problems.append(f"expected the package alone, got {', '.join(sorted(top))}")
    return [f"{file.name}: {problem}" for problem in problems]


def check_sdist(file: Path, version: str) -> list[str]:
    """Return what is wrong with an sdist."""
    with tarfile.open(file) as archive:
        names = archive.getnames()
    root = f"torchcaps-{version}"
    problems = check_names(names, version)
    for name in (
        "CMakeLists.txt",
        "csrc/portable.cpp",
        "scripts/absolute_readme.py",
        "tests/test_readme.py",
        "PKG-INFO",
    ):
        if f"{root}/{name}" not in names:
            problems.append(f"expected {name}, which is missing")
    problems += [f"expected all files in {root}/, got {name}" for name in names if name.partition("/")[0] != root]
    return [f"{file.name}: {problem}" for problem in problems]


def check_folder(folder: Path, version: str) -> list[str]:
    """Return what is wrong with the files of a release."""
    problems = []
    wheels = sorted(folder.glob("*.whl"))
    for platform, kernel in PLATFORMS.items():
        ending = re.compile(rf"torchcaps-{re.escape(version)}-py3-none-(?:\w+\.)*{platform}(?:\.\w+)*\.whl")
        own = [file for file in wheels if ending.fullmatch(file.name)]
        if len(own) != 1:
            problems.append(f"{folder}: expected one wheel for {platform}, got {len(own)}")
        for file in own:
            problems += check_wheel(file, version, kernel)
    if len(wheels) != len(PLATFORMS):
        problems.append(f"{folder}: expected {len(PLATFORMS)} wheels, got {len(wheels)}")
    sdists = sorted(folder.glob("*.tar.gz"))
    if [file.name for file in sdists] != [f"torchcaps-{version}.tar.gz"]:
        problems.append(f"{folder}: expected torchcaps-{version}.tar.gz, got {len(sdists)} sdists")
    return problems + [problem for file in sdists for problem in check_sdist(file, version)]


def main() -> None:
    """Check the release of the command line; problems end the process with a list of them."""
    tag, folder = sys.argv[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    problems = check_version(tag, project, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    problems += check_folder(Path(folder), project["version"])
    if problems:
        sys.exit("\n".join(problems))
    print(f"{tag}: ready")


if __name__ == "__main__":
    main()
