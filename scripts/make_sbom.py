"""Write the software bill of materials: `python scripts/make_sbom.py [FILE]`.

It lists every package that torchcaps and all its extras need, as installed in this environment, in the format CycloneDX
1.6 (JSON). Equal environments give equal bytes: there is no time and no random number in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = "torchcaps"
EXTRAS = ("all",)


def normal(name: str) -> str:
    """Return the normalised name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(name: str, extras: tuple[str, ...]) -> Iterator[Requirement]:
    """Yield what an installed package requires here, with some of its extras."""
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield requirement


def closure(name: str, extras: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the names of all installed packages that a package needs, each with those that it needs itself."""
    found: dict[str, set[str]] = {}
    waiting = [(normal(name), extras)]
    seen = set()
    while waiting:
        entry = waiting.pop()
        if entry in seen:
            continue
        seen.add(entry)
        package, wanted = entry
        needs = found.setdefault(package, set())
        for requirement in requirements(package, wanted):
            child = normal(requirement.name)
            if installed(child):
                needs |= {child} - {package}
                waiting.append((child, tuple(sorted(requirement.extras))))
    return found


def installed(name: str) -> bool:
    """Return whether a package is installed."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def component(name: str) -> dict[str, Any]:
    """Return the entry of a package."""
    about = metadata.metadata(name)
    version = metadata.version(name)
    purl = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    entry: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    (licence,) = about.get_all("License-Expression", [None])
    if licence:
        entry["licenses"] = [{"expression": licence}]
    else:
        # Old metadata: names of licences as classifiers.
        names = [
            text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if text.startswith("License ::")
        ]
        if names:
            entry["licenses"] = [{"license": {"name": text}} for text in sorted(set(names))]
    return entry


def make_sbom() -> dict[str, Any]:
    """Return the document."""
    graph = closure(ROOT, EXTRAS)
    entries = {name: component(name) for name in sorted(graph)}
    main = {**entries.pop(ROOT), "type": "application"}
    references = {ROOT: main["bom-ref"], **{name: entry["bom-ref"] for name, entry in entries.items()}}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": list(entries.values()),
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[child] for child in graph[name] if child != ROOT)}
            for name in sorted(graph)
        ],
    }


def main() -> None:
    """Write the document to the file of the command line, or to stdout."""
    text = json.dumps(make_sbom(), indent=2) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
