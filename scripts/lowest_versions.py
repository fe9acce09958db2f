"""Print the lowest version of every package that torchcaps allows, as constraints for pip."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest() -> dict[str, str]:
    """Return the lowest allowed version by package, of the dependencies and the extras of users."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name not in ("dev", "docs")}
    found = {}
    for text in [*project["dependencies"], *(need for needs in extras.values() for need in needs)]:
        requirement = Requirement(text)
        floors = [part.version for part in requirement.specifier if part.operator == ">="]
        if floors:
            found[requirement.name] = max(floors)
    return found


if __name__ == "__main__":
    for package, version in sorted(lowest().items()):
        print(f"{package}=={version}")
