import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from raising import raises_about
from torchcaps.data import read_image
from torchcaps.data.readers import image_files
from torchcaps.data.readers.image_files import probe_image
from torchcaps.errors import ConfigError, DataError

RAMP = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20


def save(path, pixels, mode=None, **options):
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "pgm", "gif"])
def test_lossless_formats(tmp_path, suffix):
    path = save(tmp_path / f"image.{suffix}", RAMP)
    assert torch.equal(read_image(path, (1, 3, 4))[0], torch.from_numpy(RAMP))
    assert probe_image(path) == (1, 3, 4)


@pytest.mark.parametrize("suffix", ["jpg", "webp", "avif"])
def test_lossy_formats(tmp_path, suffix):
    pixels = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    path = save(tmp_path / f"image.{suffix}", pixels)
    image = read_image(path, (3, 16, 16))
    assert (image.float() - torch.tensor([200.0, 100.0, 50.0]).view(3, 1, 1)).abs().max() <= 6
    assert probe_image(path) == (3, 16, 16)


def test_grey_and_colour(tmp_path):
    red = save(tmp_path / "red.png", np.full((2, 2, 3), (255, 0, 0), np.uint8))
    assert read_image(red, (1, 2, 2)).unique().tolist() == [76]
    grey = save(tmp_path / "grey.png", RAMP)
    assert torch.equal(read_image(grey, (3, 3, 4)), torch.from_numpy(RAMP).expand(3, 3, 4))


def test_palette(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    image.save(tmp_path / "palette.png")
    assert read_image(tmp_path / "palette.png", (3, 1, 2))[:, 0].T.tolist() == [[255, 0, 0], [0, 0, 255]]
    assert probe_image(tmp_path / "palette.png") == (3, 1, 2)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency(tmp_path, mode):
    pixels = np.zeros((1, 3, 4), np.uint8)
    pixels[0, :, 3] = (0, 255, 51)
    Image.fromarray(pixels).convert(mode).save(tmp_path / "clear.png")
    assert read_image(tmp_path / "clear.png", (1, 1, 3)).flatten().tolist() == [255, 0, 204]


def test_transparent_palette_entry(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 9, 9, 9])
    image.putdata([0, 1])
    image.save(tmp_path / "clear.gif", transparency=0)
    assert read_image(tmp_path / "clear.gif", (1, 1, 2)).flatten().tolist() == [255, 9]


def test_sixteen_bits(tmp_path):
    Image.fromarray(np.array([[0, 257 * 100, 65535]], np.uint16)).save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png", (1, 1, 3)).flatten().tolist() == [0, 100, 255]


@pytest.mark.parametrize(("mode", "suffix"), [("CMYK", "jpg"), ("CMYK", "tif"), ("LAB", "tif")])
def test_other_colour_spaces(tmp_path, mode, suffix):
    Image.new("RGB", (16, 16), (200, 100, 50)).convert(mode).save(tmp_path / f"image.{suffix}")
    image = read_image(tmp_path / f"image.{suffix}", (3, 16, 16))
    assert (image.float() - torch.tensor([200.0, 100.0, 50.0]).view(3, 1, 1)).abs().max() <= 6


def test_one_bit(tmp_path):
    save(tmp_path / "bits.png", np.array([[0, 255]], np.uint8), "1")
    assert read_image(tmp_path / "bits.png", (1, 1, 2)).flatten().tolist() == [0, 255]


def test_exif_orientation(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "turned.png", RAMP, exif=exif)
    assert probe_image(tmp_path / "turned.png") == (1, 4, 3)
    expected = torch.from_numpy(np.rot90(RAMP, -1).copy())
    assert torch.equal(read_image(tmp_path / "turned.png", (1, 4, 3))[0], expected)


def test_antialiasing(tmp_path):
    # Without antialiasing a fine checkerboard would become black, white or striped.
    board = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)
    image = read_image(save(tmp_path / "board.png", board), (1, 16, 16))
    assert (image.float() - 127.5).abs().max() < 3


def test_enlarging(tmp_path):
    path = save(tmp_path / "small.png", np.full((2, 2), 7, np.uint8))
    assert read_image(path, (1, 28, 28)).unique().tolist() == [7]


@pytest.mark.parametrize("shape", [(10, 20), (20, 10)])
def test_border_colour(tmp_path, shape):
    # Dark ink within a light margin: the added border is light, and no ink is lost.
    pixels = np.full(shape, 200, np.uint8)
    pixels[2:-2, 2:-2] = 10
    image = read_image(save(tmp_path / "oblong.png", pixels), (1, 20, 20))[0]
    wide = image if shape[0] < shape[1] else image.T
    assert wide[:5].unique().tolist() == [200]
    assert wide[15:].unique().tolist() == [200]
    assert torch.equal(image == 10, torch.from_numpy(np.pad(pixels, [((20 - side) // 2,) * 2 for side in shape])) == 10)


def test_extreme_proportions(tmp_path):
    assert read_image(save(tmp_path / "line.png", np.full((1, 1000), 9, np.uint8)), (1, 8, 8)).unique().tolist() == [9]


def test_invert(tmp_path):
    path = save(tmp_path / "ink.png", RAMP)
    assert torch.equal(read_image(path, (1, 3, 4), invert=True)[0], torch.from_numpy(255 - RAMP))


def test_two_channels(tmp_path):
    with raises_about(ConfigError, "image_shape", (2, 3, 4)):
        read_image(save(tmp_path / "image.png", RAMP), (2, 3, 4))


def test_no_such_file(tmp_path):
    with raises_about(DataError, "none.png", "no such file"):
        read_image(tmp_path / "none.png", (1, 8, 8))


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n"])
def test_not_an_image(tmp_path, content):
    path = tmp_path / "odd.png"
    path.write_bytes(content)
    for run in (lambda: read_image(path, (1, 8, 8)), lambda: probe_image(path)):
        with raises_about(DataError, path):
            run()


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp", "tiff"])
def test_truncated_image(tmp_path, kind):
    stream = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(stream, kind)
    path = tmp_path / f"cut.{kind}"
    path.write_bytes(stream.getvalue()[: len(stream.getvalue()) // 2])
    with raises_about(DataError, f"cut.{kind}"):
        read_image(path, (1, 8, 8))


def test_floating_point(tmp_path):
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "float.tif")
    with raises_about(DataError, "float.tif", "got floating point"):
        read_image(tmp_path / "float.tif", (1, 2, 2))


def test_more_than_sixteen_bits(tmp_path):
    Image.fromarray(np.full((2, 2), 70000, np.int32)).save(tmp_path / "wide.tif")
    with raises_about(DataError, "wide.tif", "got values beyond 65535"):
        read_image(tmp_path / "wide.tif", (1, 2, 2))


def bomb(path, width: int, height: int):
    """A PNG of a few bytes that claims to be huge."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize("side", [2_000, 9_300, 10_000, 100_000])
def test_image_bomb(tmp_path, side):
    path = bomb(tmp_path / "bomb.png", side, side)
    for run in (lambda: read_image(path, (1, 8, 8)), lambda: probe_image(path)):
        with raises_about(DataError, path, "80,000,000 pixels", "scale it down"):
            run()


def test_max_pixels(tmp_path, monkeypatch):
    monkeypatch.setattr(image_files, "MAX_PIXELS", 11)
    with raises_about(DataError, "image.png", "at most 11 pixels", "got 12"):
        read_image(save(tmp_path / "image.png", RAMP), (1, 3, 4))


def test_probing_decodes_no_pixels(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, data, size in (("plain", b"", (40, 30)), ("turned", exif.tobytes(), (30, 40))):
        Image.effect_noise((30, 40), 50).save(tmp_path / "whole.png", exif=data)
        # The header is whole, the second half of the file is missing.
        content = (tmp_path / "whole.png").read_bytes()
        (tmp_path / f"{name}.png").write_bytes(content[: len(content) // 2])
        assert probe_image(tmp_path / f"{name}.png") == (1, *size)
