from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.data import to_float
from torchcaps.evaluation import OFFSETS
from torchcaps.playground import PlaygroundNetwork
from torchcaps.playground.pose import (
    LIMITS,
    SWEEP_COUNTS,
    ImageTransform,
    TransformName,
    transform_image,
    unavailable_reason,
)

from .conftest import unpack

SAMPLE = {"sample": 4}


@torch.inference_mode()
def test_pose_of_a_class(ask: Any, network: PlaygroundNetwork) -> None:
    capsules = network.model(to_float(network.samples.images[4:5]))
    found = ask("pose/capsule", source=SAMPLE)
    assert found["label"] == int(capsules.activations.argmax())
    other = ask("pose/capsule", source=SAMPLE, label=2)
    assert other["label"] == 2
    assert torch.allclose(torch.tensor(other["pose"]), capsules.poses[0, 2], atol=1e-5)


@torch.inference_mode()
def test_decode(ask: Any, network: PlaygroundNetwork) -> None:
    found = ask("pose/capsule", source=SAMPLE)
    drawn = ask("pose/decode", label=found["label"], pose=found["pose"])
    capsules = network.model(to_float(network.samples.images[4:5]))
    assert (unpack(drawn["image"])[0, ..., 0] / 255 - network.model.decode(capsules)[0, 0]).abs().max() < 0.01
    assert drawn["length"] == pytest.approx(torch.tensor(found["pose"]).norm().item(), abs=1e-5)


def test_grid(ask: Any) -> None:
    pose = ask("pose/capsule", source=SAMPLE, label=1)["pose"]
    grid = ask("pose/grid", label=1, pose=pose)
    assert (grid["rows"], grid["offsets"]) == (16, list(OFFSETS))
    tiles = unpack(grid["image"])[0, ..., 0]
    assert tiles.shape == (16 * 28, 11 * 28)
    pose[6] += OFFSETS[9]
    tile = tiles[6 * 28 : 7 * 28, 9 * 28 : 10 * 28]
    single = unpack(ask("pose/decode", label=1, pose=pose)["image"])[0, ..., 0]
    assert (tile.int() - single.int()).abs().max() <= 1


@pytest.mark.parametrize("name", LIMITS.transforms)
def test_transform_sweep(ask: Any, name: TransformName) -> None:
    moved = ask("pose/transform", source=SAMPLE, sweep=name)
    limits, count = LIMITS.transforms[name], SWEEP_COUNTS[name]
    assert (moved["values"][0], moved["values"][-1]) == pytest.approx((limits.low, limits.high))
    assert len(moved["lengths"]) == len(moved["cnn"]) == len(moved["poses"]) == count
    # The middle of each sweep is the original image.
    assert moved["lengths"][count // 2] == pytest.approx(moved["scores"]["capsules"][moved["label"]], abs=1e-4)
    assert sum(moved["scores"]["cnn"]) == pytest.approx(1, abs=1e-4)


def test_sweep_keeps_the_other_parameters(ask: Any) -> None:
    turned = ask("pose/transform", source=SAMPLE, transform={"rotate": 30}, sweep="right")
    still = ask("pose/transform", source=SAMPLE, sweep="right")
    assert turned["lengths"] != still["lengths"]
    assert not torch.equal(unpack(turned["image"]), unpack(still["image"]))


def test_transform_image() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 6] = 1
    tries = [
        ImageTransform(right=2),
        ImageTransform(down=-3),
        ImageTransform(rotate=90),
        ImageTransform(scale=1.5),
        ImageTransform(shear=0.5),
    ]
    tops = [divmod(int(one.argmax()), 9) for one in transform_image(image, tries)]
    assert tops == [(4, 8), (1, 6), (2, 4), (4, 7), (4, 6)]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("pose/capsule", {"source": SAMPLE, "label": 10}, "label: expected a class number from 0 to 9, got 10"),
        ("pose/decode", {"label": 10, "pose": [0] * 16}, "label: expected a class number from 0 to 9, got 10"),
        ("pose/decode", {"label": 1, "pose": [0] * 15}, "pose: expected 16 numbers, got 15"),
        ("pose/grid", {"label": 1, "pose": [0] * 17}, "pose: expected 16 numbers, got 17"),
    ],
)
def test_invalid_labels_and_poses(refuse: Any, path: str, body: dict[str, Any], words: str) -> None:
    assert refuse(path, **body) == (400, words)


def test_decode_without_decoder(network: PlaygroundNetwork) -> None:
    from torchcaps.errors import ConfigError
    from torchcaps.models import create_model
    from torchcaps.playground.pose import DecodeRequest, decode

    model = create_model("capsnet_small", decoder="none").eval()
    with raises_about(ConfigError, "network:", "decoder", "fresh"):
        decode(DecodeRequest(label=1, pose=[0.0] * 16), dataclasses.replace(network, model=model))


def test_cnn_is_unavailable(network: PlaygroundNetwork) -> None:
    assert unavailable_reason(network) is None
    assert network.cnn is not None
    only_scores = dataclasses.replace(network, model=network.cnn)
    assert (
        unavailable_reason(only_scores) == "This network has no class capsules: its classes have scores and no poses."
    )
