"""Feed damaged files to every reader: success and DataError are the only allowed results.

    python scripts/fuzz_readers.py --seconds 300

Small valid files of each format are truncated, flipped, repeated, spliced and overwritten with extreme numbers. Any
other exception, more than 5 seconds, or more memory than a small file needs is a finding. Its input is written to
the folder of --keep, and `tests/scripts/test_fuzz_readers.py` replays it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import pickle
import random
import struct
import sys
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from PIL import Image

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from formats import (  # noqa: E402
    cifar_binary,
    idx,
    mat,
    norb,
    npz,
    picture,
    pixels,
    python2_batch,
    tar_of,
    zip_of,
)
from torchcaps.data import DATASETS  # noqa: E402
from torchcaps.data._sources import DataFile  # noqa: E402
from torchcaps.data.affnist import check_affnist  # noqa: E402
from torchcaps.data.kmnist import check_npz  # noqa: E402
from torchcaps.data.readers.archives import unpack  # noqa: E402
from torchcaps.data.readers.cifar import read_binary, read_python  # noqa: E402
from torchcaps.data.readers.idx import read_idx  # noqa: E402
from torchcaps.data.readers.image_files import FORMATS, probe_image, read_image  # noqa: E402
from torchcaps.data.readers.norb_matrix import read_matrix  # noqa: E402
from torchcaps.data.svhn import check_svhn  # noqa: E402
from torchcaps.errors import DataError  # noqa: E402

KEPT = TESTS / "data" / "found_by_fuzzing"
# Limit for a file of a few kB, beside the pixels of an image, which Pillow allocates outside of Python.
MAX_MEMORY = 64_000_000
_FILE = DataFile("train-images.imgs", max_bytes=50_000_000)
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def _image(path: Path) -> None:
    probe_image(path)
    read_image(path, (3, 16, 16))


def _unpack(path: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        unpack(path, {"a/b": ("b", 10_000), "c": ("c", 10_000)}, Path(place) / "target")


def _inside_npz(path: Path) -> None:
    """Damage inside the zip file, which its checksum would otherwise reveal."""
    path.write_bytes(zip_of({"arr_0.npy": path.read_bytes()}))
    check_npz(path, _FILE)


def _folder(path: Path) -> None:
    """One damaged image among valid ones."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("cat", "dog"):
            (Path(place) / name).mkdir()
            for number in range(3):
                (Path(place) / name / f"{number}.png").write_bytes(picture(pixels(4, 4)))
        (Path(place) / "cat" / "0.png").write_bytes(path.read_bytes())
        DATASETS["folder"].load("train+val", path=place)


READERS: dict[str, Callable[[Path], object]] = {
    "idx": lambda path: read_idx(path, 3),
    "norb": lambda path: read_matrix(path, "<i4", 2),
    "cifar_binary": lambda path: read_binary(path, ("labels",)),
    "cifar_python": lambda path: read_python(path, ("labels",)),
    "svhn": lambda path: check_svhn(path, _FILE),
    "affnist": lambda path: check_affnist(path, _FILE),
    "npz": lambda path: check_npz(path, _FILE),
    "npy": _inside_npz,
    "archive": _unpack,
    "image": _image,
    "unlisted_image": _image,
    "folder": _folder,
}


def seeds() -> dict[str, list[bytes]]:
    """Return small valid files for each reader."""
    colour = pixels(9, 7, 3)
    members = {"a/b": bytes(range(256)), "c": b"some words", "d/e": b"more"}
    svhn = {"X": pixels(32, 32, 3, 2), "y": np.array([[10], [3]], np.uint8)}
    affnist = {
        "affNISTdata": {
            "name": "words",
            "image": pixels(1600, 2),
            "label_int": np.array([[3.0, 4.0]]),
            "one": np.zeros((10, 2)),
        }
    }
    return {
        "idx": [idx(pixels(3, 4, 5)), gzip.compress(idx(pixels(3, 4, 5)))],
        "norb": [norb(np.arange(8, dtype="<i4").reshape(2, 4)), gzip.compress(norb(np.ones((5, 4), "<i4")))],
        "cifar_binary": [cifar_binary(pixels(2, 3, 32, 32), [1, 2])],
        "cifar_python": [
            python2_batch(pixels(2, 3, 32, 32), {"labels": [1, 2]}),
            *(pickle.dumps({"data": pixels(2, 3072), "labels": [1, 2]}, protocol) for protocol in (0, 2, 4)),
        ],
        "svhn": [mat(svhn), mat(svhn, packed=False), mat(svhn, order=">")],
        "affnist": [mat(affnist), mat(affnist, packed=False)],
        "npz": [npz(pixels(3, 4, 5))],
        "npy": [zipfile.ZipFile(io.BytesIO(npz(pixels(3, 4, 5)))).read("arr_0.npy")],
        "archive": [zip_of(members), tar_of(members), gzip.decompress(tar_of(members))],
        "image": images(FORMATS, ("RGB", "L", "P", "RGBA", "CMYK", "1", "I;16")),
        "unlisted_image": unlisted_images(),
        "folder": [picture(colour)],
    }


def images(kinds: Iterable[str], modes: Iterable[str]) -> list[bytes]:
    """Return an image in each of these formats and modes that Pillow writes."""
    found = []
    for kind in kinds:
        for mode in modes:
            content = io.BytesIO()
            # Not every format has every mode, and some need a program or library that is missing.
            try:
                Image.fromarray(pixels(9, 7, 3)).convert(mode).save(content, kind)
            except Exception:
                continue
            found.append(content.getvalue())
    return found


def unlisted_images() -> list[bytes]:
    """Return images in the formats that must not be opened, also in some that Pillow only reads."""
    Image.init()
    photoshop = b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 9, 7, 8, 3) + bytes(300)
    fits = b"".join(f"{key:8}= {value:>20}".encode().ljust(80) for key, value in (("SIMPLE", "T"), ("BITPIX", 8)))
    return [photoshop, fits.ljust(5760), *images(sorted(set(Image.SAVE) - {*FORMATS, "DIB", "MPO"}), ("RGB", "1"))]


def damage(content: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    """Return the content with one to four random changes."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(data) + 1) if draw.random() < 0.5 else min(len(data), draw.randrange(256))
        kind = draw.randrange(7)
        if kind == 0:
            del data[at:]
        elif kind == 1 and data:
            data[min(at, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 2:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 3:
            size = draw.choice((2, 4, 8))
            data[at : at + size] = draw.choice(_NUMBERS).to_bytes(8, draw.choice(("little", "big")))[:size]
        elif kind == 4:
            del data[at : at + draw.randrange(1, 64)]
        elif kind == 5:
            data[at:at] = data[at : at + draw.randrange(1, 64)] * draw.choice((1, 2, 50))
        else:
            other = draw.choice(others)
            start = draw.randrange(len(other))
            data[at:at] = other[start : start + draw.randrange(1, 200)]
    return bytes(data)


def run_reader(name: str, content: bytes, place: Path) -> str | None:
    """Return what a reader does wrong with this content, or None."""
    path = place / "file.png"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            READERS[name](path)
    except DataError as error:
        if "file.png" not in str(error) and name != "folder":
            return f"a message without the path of the file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return f"{peak:,} bytes of memory for {len(content):,}" if peak > MAX_MEMORY else None


def fuzz(seconds: float, seed: int, keep: Path | None = None) -> tuple[dict[str, int], list[str]]:
    """Return the number of runs of each reader, and the findings."""
    draw, corpus = random.Random(seed), seeds()
    everything = [content for contents in corpus.values() for content in contents]
    runs, found = dict.fromkeys(READERS, 0), []
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as place:
        while time.monotonic() < end:
            for name in READERS:
                content = damage(draw.choice(corpus[name]), draw, everything)
                started = time.monotonic()
                wrong = run_reader(name, content, Path(place))
                if time.monotonic() - started > 5:
                    wrong = wrong or "more than 5 seconds"
                runs[name] += 1
                if wrong is not None:
                    found.append(f"{name}: {wrong}")
                    if keep is not None:
                        keep.mkdir(parents=True, exist_ok=True)
                        (keep / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}").write_bytes(content)
    return runs, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder for inputs that break a reader")
    args = parser.parse_args()
    counts, findings = fuzz(args.seconds, args.seed, args.keep)
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()))
    print("\n".join(sorted(set(findings))) or "nothing found")
    sys.exit(1 if findings else 0)
