"""Tables of others: memory stays in proportion to the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from limits import memory_limit
from raising import raises_about
from torchcaps._csv import read_rows
from torchcaps.data._groups import groups_of_files
from torchcaps.errors import CheckpointError, DataError, TorchcapsError
from torchcaps.train import Run, load_recipe

# 40 kB that would become 200 million cells.
WIDE = ",".join(("file", "patient", "epoch", *(f"c{number:x}" for number in range(5_000)))) + "\n" + "1\n" * 40_000


def read_groups(folder: Path) -> object:
    (folder / "groups.csv").write_text(WIDE)
    return groups_of_files(f"{folder / 'groups.csv'}:patient", folder, [folder / "a.png"], ["a"])


def of_run(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        run = Run.create(load_recipe(), folder / "run")
        (run.path / f"{name}.csv").write_text(WIDE)
        return getattr(run, name)()

    return read


@pytest.mark.parametrize(("read", "error"), [
    (read_groups, DataError), (of_run("metrics"), CheckpointError), (of_run("diagnostics"), CheckpointError),
])  # fmt: skip
def test_many_columns_and_short_rows(
    tmp_path: Path, read: Callable[[Path], object], error: type[TorchcapsError]
) -> None:
    with raises_about(error, tmp_path, "5,003"), memory_limit(10**9):
        read(tmp_path)


def test_missing_values_are_none() -> None:
    assert read_rows("a,b,c\n1,2\n3,4,5\n")[0] == [{"a": "1", "b": "2", "c": None}, {"a": "3", "b": "4", "c": "5"}]
    assert read_rows("") == ([], [])
    assert read_rows("a,b\n,\n" * 3)[1] == ["a", "b"]
