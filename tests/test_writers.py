"""Everything durable is written by `torchcaps._files`: this walks the source for other writers."""

from __future__ import annotations

import ast
from pathlib import Path

import torchcaps

SOURCE = Path(torchcaps.__file__).parent
CALLS = {"savefig", "save_file", "copyfile", "copy", "copy2", "copytree", "move", "imsave", "tofile", "savez"}
# Writers that are not of a run: each with its reason.
ALLOWED = {
    # They are the one way to write.
    "_files.py",
    # Into a buffer in memory.
    "report/write.py",
    # Into a temporary folder that is renamed once it is complete.
    "data/readers/archives.py",
    "data/make_shards.py",
    "data/_package_mirrors.py",
    # Appends to a partial download, which is compared with its checksum and renamed.
    "data/_http.py",
    # A switch of the kernel in /proc.
    "bench/measure.py",
    # Into the open file of `_files.replacing`.
    "train/checkpoint.py",
}


def writes(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    base = owner.id if isinstance(owner, ast.Name) else ""
    if name in ("write_text", "write_bytes"):
        # The functions of _files are called by their plain names.
        return owner is not None and base != "_files"
    if name in CALLS:
        return name not in ("copy", "move") or base == "shutil"
    if name == "save":
        return base in ("torch", "np", "numpy")
    if name in ("open", "fdopen"):
        values = (*call.args, *(item.value for item in call.keywords))
        modes = [
            set(value.value) for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)
        ]
        return any(mode <= set("wax+bt") and mode & set("wax+") for mode in modes)
    return False


def writers(folder: Path) -> set[str]:
    found = set()
    for file in folder.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.Call) and writes(node) for node in ast.walk(tree)):
            found.add(file.relative_to(folder).as_posix())
    return found


def test_only_files_writes() -> None:
    assert writers(SOURCE) <= ALLOWED


def test_walk_finds_writers(tmp_path: Path) -> None:
    lines = ["open('a', 'w')", "p.open(mode='ab')", "p.write_text('')", "f.savefig(p)", "torch.save(a, p)"]
    for number, line in enumerate([*lines, "shutil.copy(a, b)"]):
        (tmp_path / f"{number}.py").write_text(line)
    (tmp_path / "none.py").write_text("open('file.txt', 'rb'); write_text(p, ''); Image.open(f); table.copy()")
    assert writers(tmp_path) == {f"{number}.py" for number in range(6)}
