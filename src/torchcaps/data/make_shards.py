"""Writing a folder of images as sharded tar archives, in the layout of webdataset."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchcaps._extras import explain_missing
from torchcaps._files import move, replacing, write_text
from torchcaps.data.folder import report_bad
from torchcaps.data.folder_files import Files, scan_folder, shuffle_key
from torchcaps.data.readers.image_files import read_image
from torchcaps.data.readers.shard_files import INDEX
from torchcaps.errors import ConfigError, DataError

Progress = Callable[[int, int], None]


def make_shards(
    folder: str | Path,
    out: str | Path,
    *,
    shard_size: int = 1000,
    image_size: int | Sequence[int] | None = None,
    channels: int | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    progress: Progress = lambda done, total: None,
) -> Path:
    """Write the images of a folder into tar archives of `shard_size` images each.

    All images are scaled to one shape and shuffled, so that every shard has several classes. The folder `out` appears
    when everything is written; a failure leaves nothing behind.

    Args:
        folder: Folder of images, as for `load_folder`.
        out: A new or empty folder.
        shard_size: Number of images per archive.
        image_size: Height and width, or one number for both; the default is that of `load_folder`.
        channels: 1 or 3; the default is 1 if all images are grey.
        val_fraction: Fraction of each class in the validation split if it has no folder.
        test_fraction: Fraction of each class in the test split if it has no folder.
        progress: Called with the number of written images and the total.

    Returns:
        The path of `out`.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If `out` is not empty, or an image is missing or damaged.

    Example:
        >>> make_shards("my/images", "my/shards", shard_size=1000)  # doctest: +SKIP
    """
    root, out = Path(folder).expanduser(), Path(out).expanduser()
    if shard_size < 1:
        raise ConfigError(f"shard_size: expected at least 1, got {shard_size}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out}: expected a new or empty folder, got one with files")
    scanned = scan_folder(root, {"val": val_fraction, "test": test_fraction})
    report_bad(scanned, "train", skip_bad=False)
    splits, shape = scanned.splits, scanned.image_shape(image_size, channels)
    total = sum(len(files) for split in splits.values() for files in split.values())
    # Files of a killed process are incomplete.
    unfinished = out.with_name(f".{out.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        written, done = {}, 0
        for split, files in splits.items():
            written[split] = _write_split(
                unfinished, split, _shuffled(root, files, tuple(splits["train"])), shard_size, shape,
                lambda count, done=done: progress(done + count, total),
            )  # fmt: skip
            done += sum(map(len, files.values()))
        index = {"class_names": list(splits["train"]), "image_shape": list(shape), "splits": written}
        write_text(unfinished / INDEX, json.dumps(index, indent=1) + "\n")
        if out.exists():
            out.rmdir()
        move(unfinished, out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return out


def _shuffled(root: Path, files: Files, class_names: Sequence[str]) -> list[tuple[Path, int]]:
    """Return all files with their labels, in a shuffled order that is always the same."""
    items = [(file, class_names.index(name)) for name, found in files.items() for file in found]
    return sorted(items, key=lambda item: shuffle_key(item[0].relative_to(root)))


def _write_split(
    folder: Path,
    split: str,
    items: list[tuple[Path, int]],
    shard_size: int,
    shape: tuple[int, int, int],
    progress: Callable[[int], None],
) -> list[dict[str, Any]]:
    entries = []
    for start in range(0, len(items), shard_size):
        chosen = items[start : start + shard_size]
        path = folder / f"{split}-{start // shard_size:06d}.tar"
        with (
            replacing(path) as shard,
            tarfile.open(fileobj=shard, mode="w", format=tarfile.USTAR_FORMAT) as archive,
        ):
            for number, (file, label) in enumerate(chosen, start):
                _add(archive, f"{number:08d}.cls", str(label).encode())
                _add(archive, f"{number:08d}.png", _png(file, shape))
                progress(number + 1)
        entries.append({"file": path.name, "count": len(chosen), "bytes": path.stat().st_size})
    return entries


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    # Without time and owner, the same images give the same archive.
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _png(file: Path, shape: tuple[int, int, int]) -> bytes:
    with explain_missing():
        from PIL import Image

    pixels = read_image(file, shape).permute(1, 2, 0).numpy()  # [H, W, C]
    content = io.BytesIO()
    Image.fromarray(pixels[..., 0] if shape[0] == 1 else pixels).save(content, "PNG")
    return content.getvalue()
