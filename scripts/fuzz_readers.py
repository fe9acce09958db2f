"""Feed damaged files to every reader for a while: only a DataError, or success, is right.

    python scripts/fuzz_readers.py --seconds 300

Small valid files of each format are cut, flipped, repeated, spliced and overwritten with numbers that break things. A
reader that raises anything else, or takes more memory than a small file can need, is a finding: its input is written to
the folder that --keep names, where `tests/data/test_fuzz.py` finds it from then on.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import pickle
import random
import sys
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

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
from torchcaps.data._archives import unpack  # noqa: E402
from torchcaps.data._cifar_files import read_binary, read_python  # noqa: E402
from torchcaps.data._files import DataFile  # noqa: E402
from torchcaps.data._matrix import read_matrix  # noqa: E402
from torchcaps.data.affnist import check_affnist  # noqa: E402
from torchcaps.data.idx import read_idx  # noqa: E402
from torchcaps.data.image_files import probe_image, read_image  # noqa: E402
from torchcaps.data.kmnist import check_npz  # noqa: E402
from torchcaps.data.svhn import check_svhn  # noqa: E402
from torchcaps.errors import DataError  # noqa: E402

KEPT = TESTS / "data" / "found_by_fuzzing"
# What a file of a few kB may cost: the interpreter's own work, and a picture of 80 million pixels never.
MOST_MEMORY = 64_000_000
_FILE = DataFile("train-images.imgs", most=50_000_000)
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def _image(path: Path) -> None:
    probe_image(path)
    read_image(path, (3, 16, 16))


def _unpack(path: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        unpack(path, {"a/b": ("b", 10_000), "c": ("c", 10_000)}, Path(place) / "target")


def _inside_npz(path: Path) -> None:
    """Damage that no checksum of the zip file around it would notice."""
    path.write_bytes(zip_of({"arr_0.npy": path.read_bytes()}))
    check_npz(path, _FILE)


def _folder(path: Path) -> None:
    """The damaged picture among good ones."""
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
    "folder": _folder,
}


def seeds() -> dict[str, list[bytes]]:
    """Small valid files for each reader."""
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
        "image": [picture(colour, kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")],
        "folder": [picture(colour)],
    }


def damage(content: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    """The content with one to four random changes."""
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
    """What is wrong with how a reader takes this content; None if all is well."""
    path = place / "file.png"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            READERS[name](path)
    except DataError as error:
        if "file.png" not in str(error) and name != "folder":
            return f"a message that does not name the file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return f"{peak:,} bytes of memory for {len(content):,}" if peak > MOST_MEMORY else None


def fuzz(seconds: float, seed: int, keep: Path | None = None) -> tuple[dict[str, int], list[str]]:
    """Runs of each reader, and what was found."""
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
    parser.add_argument("--keep", type=Path, default=KEPT, help="where to write inputs that break a reader")
    args = parser.parse_args()
    counts, findings = fuzz(args.seconds, args.seed, args.keep)
    print(", ".join(f"{name} {count:,}" for name, count in counts.items()))
    print("\n".join(sorted(set(findings))) or "nothing found")
    sys.exit(1 if findings else 0)
