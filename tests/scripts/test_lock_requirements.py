"""constraints.txt: exact versions, hashes, and nothing older than what the package allows."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("lock_requirements", ROOT / "scripts" / "lock_requirements.py")
assert SPEC is not None
assert SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

TEXT = (ROOT / "constraints.txt").read_text()
PINS = script.read_pins(TEXT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_pinned_package_has_a_hash() -> None:
    assert len(PINS) == sum("==" in line for line in TEXT.splitlines())
    assert [name for name, (_, hashes) in PINS.items() if not hashes] == []


def test_file_is_as_the_script_writes_it() -> None:
    assert script.format_pins(PINS) == TEXT


def test_dependencies_are_pinned_within_their_ranges() -> None:
    versions = {script.normalised(name): version for name, (version, _) in PINS.items()}
    # `wandb` is not tested here, and has no pin.
    locked = [name for name in PROJECT["optional-dependencies"] if name not in ("all", "loggers")]
    extras = [each for name in locked for each in PROJECT["optional-dependencies"][name]]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if requirement.name == "torchcaps":
            continue
        assert requirement.specifier.contains(versions[script.normalised(requirement.name)]), requirement


def test_pinned_packages_need_only_pinned_ones() -> None:
    # They are installed without their dependencies.
    pinned = {script.normalised(name) for name in PINS}
    missing = set()
    installed = {script.normalised(each.name) for each in importlib.metadata.distributions()}
    for name in (name for name in PINS if script.normalised(name) in installed):
        for each in map(Requirement, importlib.metadata.requires(name) or []):
            if (each.marker is None or each.marker.evaluate({"extra": ""})) and script.normalised(
                each.name
            ) not in pinned:
                missing.add(f"{each.name} of {name}")
    assert missing == set()


def test_versions_with_known_advisories_are_excluded() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = [*PROJECT["dependencies"], *extras["train"], *extras["play"]]
    ranges = {Requirement(each).name: Requirement(each).specifier for each in declared}
    for name, bad in {
        "lightning": ("2.6.2", "2.6.3"),
        "pillow": ("11.2.1",),
        "starlette": ("0.49.0",),
        "jinja2": ("3.1.5",),
        "torch": ("2.5.1",),
    }.items():
        assert [version for version in bad if ranges[name].contains(Version(version))] == [], name
    assert "!=2.6.2" in str(ranges["lightning"])
    assert "!=2.6.3" in str(ranges["lightning"])


def test_hashes_of_other_machines_are_kept() -> None:
    text = "b==1 \\\n    --hash=sha256:" + "0" * 64 + "\na==2\n"
    pins = script.read_pins(text)
    assert pins == {"b": ("1", ["sha256:" + "0" * 64]), "a": ("2", [])}
    assert script.read_pins(script.format_pins(pins)) == pins
