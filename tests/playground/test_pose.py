from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from torchcaps.data import to_float
from torchcaps.eval import OFFSETS
from torchcaps.playground import Network
from torchcaps.playground.pose import RANGES, Kind, Transform, lacking, transformed

from .conftest import unpack

SAMPLE = {"sample": 4}


@torch.inference_mode()
def test_the_pose_of_the_longest_or_of_the_one_asked_for(ask: Any, network: Network) -> None:
    capsules = network.model(to_float(network.samples.images[4:5]))
    found = ask("pose/look", source=SAMPLE)
    assert found["label"] == int(capsules.activations.argmax())
    other = ask("pose/look", source=SAMPLE, label=2)
    assert other["label"] == 2
    assert torch.allclose(torch.tensor(other["pose"]), capsules.poses[0, 2], atol=1e-5)


@torch.inference_mode()
def test_a_pose_is_drawn(ask: Any, network: Network) -> None:
    found = ask("pose/look", source=SAMPLE)
    drawn = ask("pose/decode", label=found["label"], pose=found["pose"])
    capsules = network.model(to_float(network.samples.images[4:5]))
    assert (unpack(drawn["image"])[0, ..., 0] / 255 - network.model.decode(capsules)[0, 0]).abs().max() < 0.01
    assert drawn["length"] == pytest.approx(torch.tensor(found["pose"]).norm().item(), abs=1e-5)


def test_the_grid_holds_every_dimension_and_offset(ask: Any) -> None:
    pose = ask("pose/look", source=SAMPLE, label=1)["pose"]
    grid = ask("pose/grid", label=1, pose=pose)
    assert (grid["rows"], grid["offsets"]) == (16, list(OFFSETS))
    sheet = unpack(grid["image"])[0, ..., 0]
    assert sheet.shape == (16 * 28, 11 * 28)
    pose[6] += OFFSETS[9]
    tile = sheet[6 * 28 : 7 * 28, 9 * 28 : 10 * 28]
    single = unpack(ask("pose/decode", label=1, pose=pose)["image"])[0, ..., 0]
    assert (tile.int() - single.int()).abs().max() <= 1


@pytest.mark.parametrize("along", RANGES)
def test_moving_the_picture_is_asked_of_both_networks(ask: Any, along: Kind) -> None:
    moved = ask("pose/move", source=SAMPLE, along=along)
    low, high, count = RANGES[along]
    assert (moved["places"][0], moved["places"][-1]) == pytest.approx((low, high))
    assert len(moved["lengths"]) == len(moved["cnn"]) == len(moved["poses"]) == count
    # The middle of each slider leaves the picture alone.
    assert moved["lengths"][count // 2] == pytest.approx(moved["now"]["capsules"][moved["label"]], abs=1e-4)
    assert sum(moved["now"]["cnn"]) == pytest.approx(1, abs=1e-4)


def test_the_other_changes_stay_while_one_is_tried(ask: Any) -> None:
    turned = ask("pose/move", source=SAMPLE, transform={"rotate": 30}, along="right")
    still = ask("pose/move", source=SAMPLE, along="right")
    assert turned["lengths"] != still["lengths"]
    assert not torch.equal(unpack(turned["image"]), unpack(still["image"]))


def test_transforms_do_what_they_say() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 6] = 1
    tries = [Transform(right=2), Transform(down=-3), Transform(rotate=90), Transform(scale=1.5), Transform(shear=0.5)]
    tops = [divmod(int(one.argmax()), 9) for one in transformed(image, tries)]
    assert tops == [(4, 8), (1, 6), (2, 4), (4, 7), (4, 6)]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("pose/look", {"source": SAMPLE, "label": 10}, "label: expected a class number from 0 to 9, got 10"),
        ("pose/decode", {"label": 10, "pose": [0] * 16}, "label: expected a class number from 0 to 9, got 10"),
        ("pose/decode", {"label": 1, "pose": [0] * 15}, "pose: expected 16 numbers, got 15"),
        ("pose/grid", {"label": 1, "pose": [0] * 17}, "pose: expected 16 numbers, got 17"),
    ],
)
def test_what_is_not_there_cannot_be_moved(refuse: Any, path: str, body: dict[str, Any], words: str) -> None:
    assert refuse(path, **body) == (400, words)


def test_a_network_without_decoder_is_told(network: Network) -> None:
    from torchcaps.errors import ConfigError
    from torchcaps.models import create_model
    from torchcaps.playground.pose import Given, decode

    model = create_model("capsnet_small", decoder="none").eval()
    with pytest.raises(ConfigError, match=r"^decode: expected a network with a decoder, got one without$"):
        decode(Given(label=1, pose=[0.0] * 16), dataclasses.replace(network, model=model))


def test_a_cnn_has_no_pose(network: Network) -> None:
    assert lacking(network) is None
    assert network.cnn is not None
    only_scores = dataclasses.replace(network, model=network.cnn)
    assert lacking(only_scores) == "The classes of this network have a score and no pose."
