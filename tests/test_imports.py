"""The direction of imports: they only ever point left, to what an image meets earlier on its way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "torchcaps"

BASE = {"types", "errors", "_registry", "_files", "_csv", "_cache", "_extras", "plugins", "_needs_train"}
# Packages from left to right: each may import those of the rows above it, the base and itself.
ROWS = (
    ("config", "ops"),
    ("data",),
    ("nn",),
    ("models",),
    ("testing", "diagnostics", "evaluation"),
    ("train",),
    ("viz",),
    ("report",),
    ("bench",),
    ("experiments",),
    ("integrations", "serving"),
    ("playground",),
    ("cli",),
)
# Exceptions: packages that must not be imported although they are further left.
FORBIDDEN = {
    "nn": {"data"},
    "models": {"data"},
    "testing": {"data"},
    "playground": {"bench", "experiments"},
}
MAY_SEE = {
    package: {left for earlier in ROWS[:place] for left in earlier} - FORBIDDEN.get(package, set())
    for place, row in enumerate(ROWS)
    for package in row
}
# Private modules that another package imports: to be made public, or to be moved.
KNOWN_PRIVATE = {
    "bench/gpu.py imports torchcaps.ops._triton.compiled",
    "bench/render.py imports torchcaps.viz._style",
    "bench/roofline.py imports torchcaps.ops._triton.compiled",
    "experiments/repeat_report.py imports torchcaps.report._page",
    "experiments/reproduction_report.py imports torchcaps.report._page",
    "models/branched_capsnet.py imports torchcaps.nn._validation",
    "nn/conv.py imports torchcaps.ops._reference",
    "nn/linear.py imports torchcaps.ops._reference",
    "nn/routers/attention.py imports torchcaps.ops._iterations",
    "nn/routers/base.py imports torchcaps.ops._reference",
    "nn/routers/base.py imports torchcaps.ops._route",
    "nn/routers/heinsen.py imports torchcaps.ops._iterations",
    "nn/routers/variational.py imports torchcaps.ops._iterations",
}
# Packages that are slow to import, or that only one layer has business with.
ONLY_IN = {
    "lightning": {"experiments", "train"},
    "matplotlib": {"viz", "bench"},
    "torchmetrics": {"evaluation", "train"},
}


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, anywhere in it, as a full name; relative ones are made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name != "torchcaps")
        # After `import torchcaps` the attribute names the package.
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torchcaps":
            yield node.lineno, f"torchcaps.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            # `from torchcaps import nn` names a package, not a thing inside one.
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "torchcaps" else [module]
            yield from ((node.lineno, name) for name in names)


def violations(source: Path) -> list[str]:
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        # The top level names everything, lazily; test_top_level.py sees to that.
        if parts in (("__init__",), ("__main__",)):
            continue
        layer = parts[0]
        package = ("torchcaps", *parts[:-1])
        for line, name in imported(ast.parse(path.read_text()), package):
            root, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if root == "torchcaps":
                allowed = BASE | MAY_SEE.get(layer, set()) | ({layer} if layer in MAY_SEE else set())
                wrong = target not in allowed and not target.startswith("__")
            else:
                wrong = root in ONLY_IN and layer not in ONLY_IN[root]
            if wrong:
                found.append(f"{path.relative_to(source).as_posix()}:{line} imports {name}")
    return found


def test_imports_point_left() -> None:
    assert violations(SOURCE) == []


def private_imports(source: Path) -> set[str]:
    """Imports of a private module of another package, as `file imports module`."""
    found = set()
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        for _, name in imported(ast.parse(path.read_text()), ("torchcaps", *parts[:-1])):
            root, *inner = name.split(".")
            if (
                root == "torchcaps"
                and len(inner) > 1
                and inner[0] != parts[0]
                and any(p.startswith("_") for p in inner)
            ):
                found.add(f"{path.relative_to(source).as_posix()} imports {name}")
    return found


def test_private_modules_stay_in_their_package() -> None:
    assert private_imports(SOURCE) <= KNOWN_PRIVATE


def test_private_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "nn").mkdir()
    (tmp_path / "nn" / "bad.py").write_text("from torchcaps.ops._route import x\nfrom torchcaps.nn._own import y\n")
    assert private_imports(tmp_path) == {"nn/bad.py imports torchcaps.ops._route"}


def test_every_package_has_a_layer() -> None:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders <= set(MAY_SEE)


@pytest.mark.parametrize(
    ("path", "line", "name"),
    [
        ("ops/bad.py", "import torchcaps.nn", "torchcaps.nn"),
        ("ops/bad.py", "from torchcaps import nn", "torchcaps.nn"),
        ("ops/dynamic/bad.py", "from torchcaps.models._base import MODELS", "torchcaps.models._base"),
        ("ops/dynamic/bad.py", "from ...nn import routers", "torchcaps.nn"),
        ("ops/dynamic/bad.py", "from ... import nn", "torchcaps.nn"),
        ("nn/bad.py", "def late():\n    from torchcaps import models", "torchcaps.models"),
        ("nn/bad.py", "import torchcaps\ntorchcaps.models.MODELS", "torchcaps.models"),
        ("nn/bad.py", "import lightning", "lightning"),
        ("models/bad.py", "from torchcaps.data import DATASETS", "torchcaps.data"),
        ("models/bad.py", "from torchcaps.testing import laws", "torchcaps.testing"),
        ("data/bad.py", "from torchcaps import models", "torchcaps.models"),
        ("train/bad.py", "from torchcaps.viz import curves", "torchcaps.viz"),
        ("train/bad.py", "from torchcaps.report import report", "torchcaps.report"),
        ("evaluation/bad.py", "from torchcaps.train import Run", "torchcaps.train"),
        ("evaluation/bad.py", "from torchcaps.diagnostics import diagnose", "torchcaps.diagnostics"),
        ("evaluation/bad.py", "import matplotlib.pyplot as plt", "matplotlib.pyplot"),
        ("viz/bad.py", "from lightning import Trainer", "lightning"),
        ("viz/bad.py", "from torchcaps.cli import main", "torchcaps.cli"),
        ("types.py", "from torchcaps import ops", "torchcaps.ops"),
        ("errors.py", "import torchcaps.nn", "torchcaps.nn"),
    ],
)
def test_wrong_import_is_found(tmp_path: Path, path: str, line: str, name: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"import torch\n{line}\n")
    (found,) = violations(tmp_path)
    assert found.startswith(f"{path}:")
    assert found.endswith(f" imports {name}")


def test_allowed_import_passes(tmp_path: Path) -> None:
    for path, line in {
        "nn/good.py": "from torchcaps import ops\nfrom torchcaps.types import Capsules\nfrom .linear import CapsLinear",
        "models/good.py": "from torchcaps.nn import CapsLinear\nfrom . import _base",
        "train/good.py": "import lightning\nfrom torchcaps.data import DATASETS",
        "report/good.py": "from torchcaps import viz\nfrom torchcaps.train import Run",
        "viz/good.py": "import matplotlib\nfrom torchcaps.types import Trace",
        "cli/good.py": "import torchcaps\nfrom torchcaps import __version__, viz\ntorchcaps.__version__",
        "__init__.py": "from torchcaps import cli",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(line + "\n")
    assert violations(tmp_path) == []


# Modules of the standard library that Windows does not have.
POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


def test_modules_of_posix_are_imported_only_where_they_are_needed() -> None:
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else {node.module}
                assert not names & POSIX, f"{file.relative_to(SOURCE)} imports {names}"
