from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from raising import raises_about
from torchcaps.errors import CheckpointError
from torchcaps.models import create_model
from torchcaps.models._weights import load_weights, save_weights


def test_round_trip(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    save_weights(model, tmp_path / "w.safetensors")
    other = load_weights(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), tmp_path / "w.safetensors")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def test_shared_memory(tmp_path):
    shared = torch.arange(4.0)
    save_weights({"weight": shared.view(1, 4), "other": shared}, tmp_path / "w.safetensors")
    assert (tmp_path / "w.safetensors").exists()


@pytest.mark.parametrize("content", [None, b"", b"not at all safetensors", b"\x80\x02}q\x00."])
def test_not_safetensors(tmp_path, content):
    file = tmp_path / "w.safetensors"
    if content is not None:
        file.write_bytes(content)
    with raises_about(CheckpointError, "weights:", "w.safetensors"):
        load_weights(nn.Linear(3, 2), file)


def test_cut_short(tmp_path):
    file = tmp_path / "w.safetensors"
    save_weights(nn.Linear(30, 20), file)
    file.write_bytes(file.read_bytes()[:-10])
    with raises_about(CheckpointError, "weights:", "safetensors"):
        load_weights(nn.Linear(30, 20), file)


def test_wrong_names_and_shapes(tmp_path):
    file = tmp_path / "w.safetensors"
    save_weights({"weight": torch.zeros(2, 4), "bais": torch.zeros(2)}, file)
    with raises_about(CheckpointError, "weights:", "Linear", "no 'bias'", "unknown 'bais'", "'weight' is (2, 4)"):
        load_weights(nn.Linear(3, 2), file)


def test_many_problems_are_counted(tmp_path):
    file = tmp_path / "w.safetensors"
    save_weights({}, file)
    with raises_about(CheckpointError, "weights:", "1 more"):
        load_weights(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), file)


def test_temperature_comes_back(tmp_path):
    file = tmp_path / "w.safetensors"
    model = create_model("cnn_small")
    model.temperature = 0.1 + 0.2
    save_weights(model, file)
    assert load_weights(create_model("cnn_small"), file).temperature == 0.1 + 0.2
    save_weights(model.state_dict(), file, temperature=4.0)
    assert load_weights(create_model("cnn_small"), file).temperature == 4.0


def test_weights_without_temperature_have_none(tmp_path):
    file = tmp_path / "w.safetensors"
    save_weights(create_model("cnn_small").state_dict(), file)
    model = create_model("cnn_small")
    model.temperature = 3.0
    assert load_weights(model, file).temperature is None


@pytest.mark.parametrize("stored", ["warm", "0", "-1", "nan", "inf"])
def test_temperature_that_is_not_positive_is_refused(tmp_path, stored):
    file = tmp_path / "w.safetensors"
    save_file(create_model("cnn_small").state_dict(), file, {"torchcaps": json.dumps({"temperature": stored})})
    with raises_about(CheckpointError, "weights:", stored):
        load_weights(create_model("cnn_small"), file)


def test_file_does_not_depend_on_the_order_of_options(tmp_path):
    # A recipe that was read from a run folder may have its options in another order.
    for name, options in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1})):
        save_weights({"w": torch.zeros(2)}, tmp_path / name, description={"options": options})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
