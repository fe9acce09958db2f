"""Everything durable is written by `torchcaps._files`: this walks the source for other writers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchcaps

SOURCE = Path(torchcaps.__file__).parent
# Methods and functions that write whatever they are called on.
ALWAYS = {
    *("write_text", "write_bytes", "savefig", "save_file", "serialize_file", "imsave", "imwrite", "tofile", "touch"),
    *("savez", "savez_compressed", "savetxt", "symlink_to", "hardlink_to"),
    *("copyfile", "copy2", "copytree", "copyfileobj", "NamedTemporaryFile", "mkstemp", "extractall"),
}
# Names that also have harmless owners, and the modules whose functions they are.
OF_MODULE = {
    "copy": {"shutil"},
    "move": {"shutil"},
    "rename": {"os"},
    "replace": {"os"},
    "dump": {"json", "pickle", "yaml"},
}
# Functions of _files, called by their plain names, and contexts that give a file to write to.
OURS = {"write_text", "write_bytes", "move"}
CONTEXTS = {"replacing", "appending"}
BUFFERS = {"BytesIO", "StringIO"}


def name_of(call: ast.Call) -> tuple[str, str]:
    """Return the name that is called and the name that it is looked up in, if that is a plain one."""
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        return call.func.attr, owner.id if isinstance(owner, ast.Name) else "?"
    return getattr(call.func, "id", ""), ""


def safe_names(tree: ast.AST) -> set[str]:
    """Return the names of files that `_files` opened and of buffers in memory."""
    found: set[str] = set()
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr, ast.expr | None]] = []
        if isinstance(node, ast.With):
            pairs = [(item.context_expr, item.optional_vars) for item in node.items]
        elif isinstance(node, ast.Assign):
            pairs = [(node.value, node.targets[0])]
        for value, target in pairs:
            if isinstance(value, ast.Call) and name_of(value)[0] in CONTEXTS | BUFFERS and isinstance(target, ast.Name):
                found.add(target.id)
    return found


def writing_mode(call: ast.Call) -> bool:
    values = (*call.args, *(item.value for item in call.keywords))
    texts = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    # "w", "ab", "x+", and those of archives: "w:gz", "w|".
    modes = [set(text.partition(":")[0].rstrip("|")) for text in texts]
    return any(mode <= set("rwax+bt") and mode & set("wax+") for mode in modes)


def writes(call: ast.Call, safe: set[str]) -> bool:
    name, owner = name_of(call)
    arguments = [*call.args, *(item.value for item in call.keywords)]
    if owner in safe or any(isinstance(value, ast.Name) and value.id in safe for value in arguments):
        return False
    # A switch of the kernel, which is no file.
    if isinstance(call.func, ast.Attribute) and "'/proc/" in ast.unparse(call.func.value):
        return False
    if name in OURS and owner in ("", "_files"):
        return False
    if name in ("rename", "replace", "link") and owner not in ("", "os"):
        # A path is replaced by one path, a text takes two arguments, a dataclass keywords.
        return len(call.args) == 1 and not call.keywords
    if name in OF_MODULE:
        return owner in OF_MODULE[name]
    if name == "save":
        # The functions of safetensors return bytes and are called by their plain names.
        return bool(owner)
    if name == "open" and owner == "os":
        return "O_CREAT" in ast.unparse(call)
    return name in ALWAYS or (name in ("open", "fdopen", "ZipFile", "TarFile", "GzipFile") and writing_mode(call))


def writers(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        if file == SOURCE / "_files.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        safe = safe_names(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and writes(node, safe):
                yield f"{file.relative_to(folder).as_posix()}:{node.lineno}: {ast.unparse(node)}"


def test_only_files_writes() -> None:
    assert list(writers(SOURCE)) == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            "open('a', 'w')",
            "p.open(mode='ab')",
            "p.write_text('')",
            "f.savefig(p)",
            "torch.save(a, p)",
            "np.save(p, a)",
        ),
        *("shutil.copy(a, b)", "a.replace(b)", "a.rename(b)", "os.replace(a, b)", "json.dump(a, f)", "save_file(a, p)"),
        *("tarfile.open(p, 'w:gz')", "zipfile.ZipFile(p, 'w')", "os.open(p, os.O_CREAT)", "image.save(p)", "p.touch()"),
    ],
)
def test_walk_finds_writers(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.py").write_text(line)
    assert len(list(writers(tmp_path))) == 1


@pytest.mark.parametrize(
    "line",
    [
        *("open('file.txt', 'rb')", "write_text(p, '')", "Image.open(f)", "table.copy()", "a.replace('x', 'y')"),
        *(
            "replace(recipe, seed=1)",
            "move(a, b)",
            "with replacing(p) as f:\n    torch.save(a, f)",
            "tarfile.open(p, 'r:')",
        ),
        *(
            "b = io.BytesIO()\nimage.save(b, 'PNG')",
            "json.dumps(a)",
            "save(tensors)",
            "os.open(os.devnull, os.O_WRONLY)",
        ),
    ],
)
def test_walk_finds_nothing_else(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.py").write_text(line)
    assert list(writers(tmp_path)) == []
