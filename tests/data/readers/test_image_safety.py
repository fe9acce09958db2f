"""Hostile image files: external programs, pipes and devices, memory."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from formats import jpeg2000, tiled_tiff
from raising import raises_about
from torchcaps.data import load_shards, read_image
from torchcaps.data.readers import image_files
from torchcaps.data.readers.image_files import FORMATS, probe_image
from torchcaps.data.readers.shard_files import INDEX
from torchcaps.errors import DataError

SCRIPTS = Path(__file__).parents[3] / "scripts"


def encoded(kind: str) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(content, kind)
    return content.getvalue()


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in `gs` on the PATH that leaves a file when it is started."""
    mark, program = tmp_path / "started", tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    # Pillow searches for Ghostscript once.
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    return mark


def test_stand_in_works(ghostscript, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(encoded("EPS"))
    with Image.open(tmp_path / "photo.jpg") as image, pytest.raises((OSError, ValueError)):
        image.load()
    assert ghostscript.exists()


@pytest.mark.parametrize("read", [lambda path: read_image(path, (3, 4, 4)), probe_image])
def test_eps_does_not_start_ghostscript(ghostscript, tmp_path, read):
    path = tmp_path / "photo.jpg"
    path.write_bytes(encoded("EPS"))
    with raises_about(DataError, path, "PNG"):
        read(path)
    assert not ghostscript.exists()


def test_eps_in_a_shard(ghostscript, tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in (("0.cls", b"0"), ("0.png", encoded("EPS"))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    entry = {"file": "a.tar", "count": 1, "bytes": (tmp_path / "a.tar").stat().st_size}
    index = {"class_names": ["a"], "image_shape": [3, 4, 4], "splits": {"train": [entry]}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    with raises_about(DataError, tmp_path / "a.tar"):
        load_shards("train", tmp_path).batch([0])
    assert not ghostscript.exists()


Image.init()
# The plugins of BMP and JPEG also read their variants DIB and MPO.
UNLISTED = sorted(set(Image.SAVE) & set(Image.OPEN) - {*FORMATS, "DIB", "MPO"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", UNLISTED)
def test_unlisted_formats(tmp_path, kind):
    try:
        content = encoded(kind)
    except (OSError, ValueError, KeyError, AttributeError, SystemError) as error:
        pytest.skip(f"Pillow does not write a colour image as {kind}: {error}")
    path = tmp_path / "photo.png"
    path.write_bytes(content)
    with raises_about(DataError, path, "PNG"):
        read_image(path, (3, 4, 4))


@pytest.mark.parametrize("read", [lambda path: read_image(path, (1, 8, 8)), probe_image])
def test_pipe(tmp_path, read):
    os.mkfifo(tmp_path / "pipe.png")
    errors: list[BaseException] = []

    def run() -> None:
        with raises_about(DataError, tmp_path / "pipe.png", "not a regular file") as caught:
            read(tmp_path / "pipe.png")
        errors.append(caught.value)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=300)
    assert not thread.is_alive()
    assert len(errors) == 1


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/"])
def test_device_or_folder(path):
    with raises_about(DataError, path):
        read_image(path, (1, 8, 8))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_reduced_matches_whole(tmp_path, monkeypatch, kind, mode, orientation):
    if kind == "JPEG" and mode in ("RGBA", "P"):
        pytest.skip("JPEG has no such mode")
    rows, columns = np.mgrid[:300, :420]
    pixels = np.stack([rows * 255 // 300, columns * 255 // 420, 255 - rows * 255 // 300, rows * 255 // 300], -1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(pixels.astype(np.uint8)).convert(mode)
    path = tmp_path / f"image.{kind.lower()}"
    image.save(path, kind, exif=exif)
    shape = (3, 20, 28) if orientation == 1 else (3, 28, 20)
    whole = read_image(path, shape)
    monkeypatch.setattr(image_files, "_WHOLE_PIXELS", 1000)
    monkeypatch.setattr(image_files, "_STRIP_PIXELS", 4200)
    reduced = read_image(path, shape)
    assert (whole.float() - reduced.float()).abs().max() <= 4
    assert not torch.equal(whole, 255 - reduced)


def test_sixteen_bits_reduced(tmp_path, monkeypatch):
    values = np.linspace(0, 65535, 400 * 400).reshape(400, 400).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    whole = read_image(tmp_path / "deep.png", (1, 10, 10))
    monkeypatch.setattr(image_files, "_WHOLE_PIXELS", 1000)
    assert (whole.float() - read_image(tmp_path / "deep.png", (1, 10, 10)).float()).abs().max() <= 2


def test_limit_per_format(tmp_path, monkeypatch):
    Image.fromarray(np.zeros((100, 100), np.uint8)).save(tmp_path / "image.webp")
    monkeypatch.setattr(image_files, "MEMORY", 24 * 9_999)
    with raises_about(DataError, "image.webp", "9,999 pixels in a WEBP", "got 10,000"):
        read_image(tmp_path / "image.webp", (1, 8, 8))


def test_budget_serialises_large_images(monkeypatch):
    monkeypatch.setattr(image_files, "MEMORY", 100)
    budget = image_files._Budget()
    budget.acquire(60)
    second = threading.Thread(target=budget.acquire, args=(60,))
    second.start()
    second.join(timeout=0.05)
    assert second.is_alive()
    budget.release(60)
    second.join(timeout=300)
    assert not second.is_alive()
    budget.release(60)
    # An image above the total is decoded alone.
    budget.acquire(1000)
    assert budget.used == 1000


def test_images_are_decoded_within_the_budget(tmp_path, monkeypatch):
    Image.new("L", (10, 10)).save(tmp_path / "image.png")
    # 24 bytes for each of its 100 pixels, and one of the decoder.
    monkeypatch.setattr(image_files, "MEMORY", 2600)
    budget = image_files._Budget()
    monkeypatch.setattr(image_files, "_BUDGET", budget)
    budget.acquire(200)
    reader = threading.Thread(target=read_image, args=(tmp_path / "image.png", (1, 8, 8)))
    reader.start()
    reader.join(timeout=0.1)
    assert reader.is_alive()
    budget.release(200)
    reader.join(timeout=300)
    assert not reader.is_alive()
    assert budget.used == 0


def test_large_image_is_converted_in_strips(tmp_path, monkeypatch):
    Image.new("RGBA", (200, 300)).save(tmp_path / "image.png")
    monkeypatch.setattr(image_files, "_WHOLE_PIXELS", 10_000)
    monkeypatch.setattr(image_files, "_STRIP_PIXELS", 8000)
    sizes: list[int] = []
    convert = image_files._plain
    monkeypatch.setattr(
        image_files, "_plain", lambda image, *rest: (sizes.append(image.width * image.height), convert(image, *rest))[1]
    )
    read_image(tmp_path / "image.png", (3, 8, 8))
    assert max(sizes) <= 8000
    assert sum(sizes) == 200 * 300


def measure_security() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_security", SCRIPTS / "measure_security.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "side", "mode"), measure_security().BOMBS)
def test_folder_of_bombs(kind, side, mode):
    measured = measure_security().bomb(kind, side, mode)
    assert measured["peak_mb"] < 1000, measured


@pytest.mark.parametrize("read", [lambda path: read_image(path, (1, 4, 4)), probe_image])
def test_tiles_larger_than_the_image(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(tiled_tiff(16, 16, 64))
    read(path)
    path.write_bytes(tiled_tiff(16, 16, 16_000))
    with raises_about(DataError, path, f"{8 * 16_000**2 + 256:,}"):
        read(path)


# The byte of a precinct has the exponents of its sides: one of a single pixel takes 600 bytes for each channel.
@pytest.mark.parametrize("precinct", [0x00, 0x11, 0x01, 0x10])
def test_small_blocks_of_jpeg_2000(tmp_path: Path, precinct: int) -> None:
    path = tmp_path / "a.jp2"
    path.write_bytes(jpeg2000(64, precinct))
    assert read_image(path, (3, 4, 4)).shape == (3, 4, 4)
    path.write_bytes(jpeg2000(1400, precinct))
    with raises_about(DataError, path, "bytes", f"{64 * 64:,} pixels"):
        probe_image(path)


def test_blocks_of_usual_jpeg_2000_files(tmp_path: Path) -> None:
    path = tmp_path / "a.jp2"
    for content in (jpeg2000(1400, 0x88), jpeg2000(1400, 0x55, codeblock_size=(32, 32)), jpeg2000(1400)):
        path.write_bytes(content)
        # The box around the data names the size of the image before it was changed.
        assert probe_image(path) == (3, 64, 64)


def test_coding_style_of_a_channel_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jp2"
    style = bytes.fromhex("ff53 000a 00 01 00 04 04 00 00 00".replace(" ", ""))
    path.write_bytes(jpeg2000(1400) + style)
    with raises_about(DataError, path, "bytes"):
        probe_image(path)
    # A wrong length: no coding style.
    path.write_bytes(jpeg2000(1400) + style.replace(b"\x0a", b"\x0b"))
    assert probe_image(path) == (3, 64, 64)


def test_opening_an_animation_counts_its_first_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    acquire = image_files._BUDGET.acquire

    def count(size: int) -> None:
        counted.append(size)
        acquire(size)

    monkeypatch.setattr(image_files._BUDGET, "acquire", count)
    (tmp_path / "a.gif").write_bytes(encoded("GIF"))
    assert probe_image(tmp_path / "a.gif") == (1, 4, 4)
    # Pillow refuses twice its limit.
    assert max(counted) >= 2 * (Image.MAX_IMAGE_PIXELS or 0) > 0


def test_large_tiles_in_a_shard(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in (("0.tif", tiled_tiff(16, 16, 16_000)), ("0.cls", b"0")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    entry = {"file": "a.tar", "count": 1, "bytes": (tmp_path / "a.tar").stat().st_size}
    index = {"class_names": ["a", "b"], "image_shape": [1, 16, 16], "splits": {"train": [entry]}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    with raises_about(DataError, tmp_path / "a.tar", "bytes"):
        load_shards("train", tmp_path).batch([0])
