from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from raising import raises_about
from torchcaps.data import coil20, eth80, load_data
from torchcaps.errors import ConfigError, DataError


def png(level: int, side: int = 8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((side, side), level, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def coil_files(own_data: Path) -> Path:
    folder = own_data / "coil-20-proc"
    folder.mkdir()
    for item in range(1, 21):
        for view in range(4, 72, 10):
            (folder / f"obj{item}__{view}.png").write_bytes(png(10 * item + view // 10))
    return folder


@pytest.fixture
def eth_files(own_data: Path) -> Path:
    folder = own_data / "eth80-cropped64"
    for view in eth80.VIEWS:
        if view.instance == 2:
            path = folder / view.file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(20 * view.label + view.azimuth // 20))
    return folder


def test_coil20_angles_and_pixels(coil_files: Path) -> None:
    data = load_data("coil20", "val", image_size=8)
    assert (len(data), data.image_shape, data.num_classes) == (140, (1, 8, 8), 20)
    expected = 10 * (data.labels + 1) + data.meta["azimuth"] // 50
    assert torch.equal(data.images[:, 0, 4, 4].long(), expected)
    assert set(data.meta["azimuth"].tolist()) == set(range(20, 360, 50))


def test_eth80_views_and_pixels(eth_files: Path) -> None:
    data = load_data("eth80", "val", image_size=8)
    assert (len(data), data.image_shape) == (328, (3, 8, 8))
    above = data.meta["polar"] == 0
    assert (data.meta["azimuth"][above] == -1).all()
    assert int(above.sum()) == 8
    expected = 20 * data.labels + data.meta["azimuth"].clamp(min=0) // 20
    assert torch.equal(data.images[:, 0, 4, 4].long(), expected)
    # Cars are not numbered from 1 to 10.
    assert (eth_files / "car3").is_dir()
    assert eth80.View(1, 3, 90, 0).file.name == "car5/car5-090-000.png"


def test_eth80_has_41_views_of_80_objects() -> None:
    assert Counter(view[:2] for view in eth80.VIEWS) == Counter({(k, n): 41 for k in range(8) for n in range(10)})


@pytest.mark.parametrize("viewpoint", [None, "azimuth", "polar"])
@pytest.mark.parametrize("fold", range(5))
def test_eth80_splits_share_no_object(viewpoint: str | None, fold: int) -> None:
    def views(split: str) -> set[eth80.View]:
        return {view for view in eth80.VIEWS if eth80._belongs(view, split, fold, viewpoint)}

    def objects(split: str) -> set[tuple[int, int]]:
        return {(view.label, view.instance) for view in views(split)}

    assert not objects("train") & objects("val")
    assert not objects("train+val") & objects("test")
    assert views("train") | views("val") == views("train+val")
    assert (len(objects("train")), len(objects("val")), len(objects("test"))) == (56, 8, 16)
    if viewpoint:
        assert views("familiar") | views("novel") == views("test")
        assert not {view[2:] for view in views("train")} & {view[2:] for view in views("novel")}


@pytest.mark.parametrize("viewpoint", [None, "azimuth"])
def test_coil20_splits_share_no_view(viewpoint: str | None) -> None:
    def views(split: str) -> set[int]:
        return {view for view in range(72) if coil20._belongs(view, split, viewpoint)}

    assert not views("train") & views("val")
    assert not views("train+val") & views("test")
    assert views("train") | views("val") == views("train+val")
    if viewpoint:
        assert views("familiar") | views("novel") == views("test")
        assert max(min(view, 72 - view) for view in views("train+val")) == 18
        assert min(min(view, 72 - view) for view in views("novel")) == 19
    else:
        assert views("train+val") | views("test") == set(range(72))


@pytest.mark.parametrize("name", ["coil20", "eth80"])
def test_bad_options(name: str) -> None:
    with raises_about(ConfigError, "viewpoint", "novel"):
        load_data(name, "novel")
    with raises_about(ConfigError, "viewpoint", "height"):
        load_data(name, "test", viewpoint="height")
    with raises_about(ConfigError, "image_size", 0):
        load_data(name, "test", image_size=0)
    with raises_about(ConfigError, "fold", 5):
        load_data("eth80", "test", fold=5)


def test_damaged_and_missing_views(coil_files: Path) -> None:
    (coil_files / "obj3__14.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match="obj3__14"):
        load_data("coil20", "val")
    (coil_files / "obj3__14.png").unlink()
    with pytest.raises(DataError, match="obj3__14"):
        load_data("coil20", "val")
