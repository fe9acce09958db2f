"""Write a folder of images as sharded tar archives, in the layout of webdataset."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from torchcaps.data._shard_files import INDEX
from torchcaps.data.folder import Files, draw_key, find_images, image_shape_of
from torchcaps.data.image_files import read_image
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
    """Write the images of a folder, one sub-folder per class, into archives of `shard_size` images each.

    Sizes, channels and parts are those of `load_folder`. Images are brought to one shape now, so that nothing is
    left to do when they are read, and mixed, so that no shard holds one class alone. The folder `out` is there once
    everything is written; until then, and after a failure, there is none.
    """
    root, out = Path(folder).expanduser(), Path(out).expanduser()
    if shard_size < 1:
        raise ConfigError(f"shard_size: expected a count of at least 1, got {shard_size}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out}: expected a new or empty folder, got one that holds something")
    parts = find_images(root, {"val": val_fraction, "test": test_fraction})
    shape = image_shape_of(parts, image_size, channels)
    total = sum(len(files) for part in parts.values() for files in part.values())
    # What a kill left behind is of no use to anybody.
    unfinished = out.with_name(f".{out.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        written, done = {}, 0
        for part, files in parts.items():
            written[part] = _write_part(
                unfinished, part, _mixed(root, files, tuple(parts["train"])), shard_size, shape,
                lambda count, done=done: progress(done + count, total),
            )  # fmt: skip
            done += sum(map(len, files.values()))
        index = {"class_names": list(parts["train"]), "image_shape": list(shape), "parts": written}
        (unfinished / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        if out.exists():
            out.rmdir()
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return out


def _mixed(root: Path, files: Files, class_names: Sequence[str]) -> list[tuple[Path, int]]:
    """All files with their class numbers, in an order that knows nothing of classes and is always the same."""
    items = [(file, class_names.index(name)) for name, found in files.items() for file in found]
    return sorted(items, key=lambda item: draw_key(item[0].relative_to(root)))


def _write_part(
    folder: Path,
    part: str,
    items: list[tuple[Path, int]],
    shard_size: int,
    shape: tuple[int, int, int],
    progress: Callable[[int], None],
) -> list[dict[str, Any]]:
    entries = []
    for start in range(0, len(items), shard_size):
        chosen = items[start : start + shard_size]
        path = folder / f"{part}-{start // shard_size:06d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for number, (file, label) in enumerate(chosen, start):
                _add(archive, f"{number:08d}.cls", str(label).encode())
                _add(archive, f"{number:08d}.png", _png(file, shape))
                progress(number + 1)
        entries.append({"file": path.name, "count": len(chosen), "bytes": path.stat().st_size})
    return entries


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    # No time, no owner: the same images give the same archive.
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _png(file: Path, shape: tuple[int, int, int]) -> bytes:
    pixels = read_image(file, shape).permute(1, 2, 0).numpy()  # [H, W, C]
    content = io.BytesIO()
    Image.fromarray(pixels[..., 0] if shape[0] == 1 else pixels).save(content, "PNG")
    return content.getvalue()
