import importlib.util
from pathlib import Path

import pytest

from raising import raises_about
from torchcaps.errors import DataError

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("fuzz_readers", ROOT / "scripts" / "fuzz_readers.py")
assert SPEC is not None
assert SPEC.loader is not None
fuzz_readers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz_readers)

FOUND = sorted(fuzz_readers.KEPT.iterdir())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_earlier_findings(tmp_path, path):
    assert fuzz_readers.run_reader(path.name.partition("-")[0], path.read_bytes(), tmp_path) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [name for name in fuzz_readers.READERS if name != "unlisted_image"])
def test_valid_seeds(tmp_path, name):
    for content in fuzz_readers.seeds()[name]:
        (tmp_path / "file.png").write_bytes(content)
        fuzz_readers.READERS[name](tmp_path / "file.png")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_unlisted_seeds(tmp_path):
    path = tmp_path / "file.png"
    contents = fuzz_readers.unlisted_images()
    assert any(content.startswith(b"%!PS-Adobe") for content in contents)
    for content in contents:
        path.write_bytes(content)
        with raises_about(DataError, path):
            fuzz_readers.READERS["unlisted_image"](path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_damaged_files():
    runs, found = fuzz_readers.fuzz(seconds=4, seed=0)
    assert found == []
    assert min(runs.values()) > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_findings(tmp_path, monkeypatch):
    def wrong(path: Path) -> None:
        raise IndexError("somewhere inside")

    def hungry(path: Path) -> bytes:
        return bytes(2 * fuzz_readers.MAX_MEMORY)

    monkeypatch.setitem(fuzz_readers.READERS, "idx", wrong)
    assert fuzz_readers.run_reader("idx", b"x", tmp_path) == "IndexError: somewhere inside"
    monkeypatch.setitem(fuzz_readers.READERS, "idx", hungry)
    assert "bytes of memory for 1" in fuzz_readers.run_reader("idx", b"x", tmp_path)
    monkeypatch.setattr(fuzz_readers, "READERS", {"idx": wrong})
    _, found = fuzz_readers.fuzz(seconds=0.05, seed=0, keep=tmp_path / "kept")
    assert found[0] == "idx: IndexError: somewhere inside"
    assert list((tmp_path / "kept").iterdir())
