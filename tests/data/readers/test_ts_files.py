"""Files of the UCR and UEA archives: real ones, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from formats import signal_file
from raising import raises_about
from torchcaps.data.readers import ts_files
from torchcaps.data.readers.ts_files import MAX_LINE, read_ts
from torchcaps.errors import DataError

HEAD = "# made\n@problemName made\n@timeStamps false\n@classLabel true a b\n@data\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "made_TRAIN.ts"
    path.write_text(text)
    return path


def test_values_and_classes(tmp_path: Path) -> None:
    found = read_ts(write(tmp_path, HEAD + "1,2.5,-3:4,5,6e1:b\n\n0,0:1,1:a\n"))
    assert found.class_names == ("a", "b")
    assert found.labels == [1, 0]
    assert [series.tolist() for series in found.series] == [[[1, 2.5, -3], [4, 5, 60]], [[0, 0], [1, 1]]]
    assert found.series[0].dtype == np.float32


def test_gzip_is_read(tmp_path: Path) -> None:
    path = tmp_path / "made.ts"
    path.write_bytes(gzip.compress(signal_file()))
    assert [series.shape for series in read_ts(path).series] == [(2, length) for length in (6, 6, 5, 4, 6, 6)]


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (HEAD + "1,2:a\n1,?,3:b\n", ["line 7", "channel 1", "'?'", "missing"]),
        (HEAD + "1,2:a\n1,NaN:b\n", ["line 7", "channel 1", "'NaN'", "finite"]),
        (HEAD + "1,1e300:a\n", ["line 6", "'1e300'", "finite"]),
        (HEAD + "1,x:a\n", ["line 6", "'x'"]),
        (HEAD + "1,2::a\n", ["line 6", "channel 2", "length 0"]),
        (HEAD + ":a\n", ["line 6", "channel 1", "length 0"]),
        (HEAD + "a\n", ["line 6", "no colon"]),
        (HEAD + "1,2:c\n", ["line 6", "'c'", "a, b"]),
        (HEAD + "1,2:1:a\n", ["line 6", "2 values", "1 in channel 2"]),
        (HEAD + "1,2:3,4:a\n1,2:b\n", ["line 7", "2 channels", "got 1"]),
        (HEAD, ["at least one signal"]),
        ("@timeStamps true\n" + HEAD, ["line 1", "time stamps"]),
        ("@targetlabel true\n@data\n", ["line 1", "regression"]),
        ("@classLabel false\n@data\n1,2\n", ["@classLabel", "got 0"]),
        ("1,2,3\n", ["line 1", "header"]),
        ("@problemName x\n", ["@data"]),
        (f"@classLabel true {' '.join(map(str, range(10_001)))}\n@data\n1:1\n", ["10,000 classes", "10,001"]),
        (f"{HEAD}1:a\n{'1,' * (MAX_LINE // 2)}1:b\n", ["line 7", f"{MAX_LINE:,} bytes"]),
    ],
)
def test_wrong_files_are_named_with_the_line(tmp_path: Path, text: str, about: list[str]) -> None:
    path = write(tmp_path, text)
    with raises_about(DataError, path, *about):
        read_ts(path)


def test_bytes_are_no_signals(tmp_path: Path) -> None:
    path = tmp_path / "made.ts"
    path.write_bytes(b"@data\xff")
    with raises_about(DataError, path, "UTF-8"):
        read_ts(path)
    with raises_about(DataError, tmp_path / "none.ts"):
        read_ts(tmp_path / "none.ts")


def test_small_compressed_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "made.ts"
    path.write_bytes(gzip.compress((b"#" * 1_000_000 + b"\n") * 65 + signal_file()))
    assert path.stat().st_size < 100_000
    with raises_about(DataError, path, "64,000,000", "line 64"):
        read_ts(path)


def test_number_of_signals_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ts_files, "MAX_SIGNALS", 3)
    assert len(read_ts(write(tmp_path, HEAD + "1:a\n" * 3)).series) == 3
    with raises_about(DataError, "line 9", "at most 3 signals"):
        read_ts(write(tmp_path, HEAD + "1:a\n" * 4))


@pytest.mark.parametrize(
    ("name", "count", "channels", "lengths", "classes"),
    [
        ("BasicMotions", 40, 6, (100, 100), 4),
        ("JapaneseVowels", 270, 12, (7, 26), 9),
        ("ItalyPowerDemand", 67, 1, (24, 24), 2),
        ("PickupGestureWiimoteZ", 50, 1, (29, 361), 10),
    ],
)
def test_real_files(
    real_data: Path, name: str, count: int, channels: int, lengths: tuple[int, int], classes: int
) -> None:
    path = real_data / "ucr" / name / f"{name}_TRAIN.ts"
    if not path.is_file():
        pytest.skip(f"needs {path}, which is in the wheel aeon 1.6.0 under aeon/datasets/data")
    found = read_ts(path)
    sizes = [series.shape[1] for series in found.series]
    assert (len(found.series), len(found.class_names)) == (count, classes)
    assert {len(series) for series in found.series} == {channels}
    assert (min(sizes), max(sizes)) == lengths
