"""Folders and repositories of the Hugging Face hub: round trips, the card, and folders of others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import huggingface_hub as hf
import pytest
import torch
from safetensors.torch import save_file

import torchcaps as tc
from model_shapes import fit_shape
from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.integrations.hub import HubModel
from torchcaps.models import create_model, list_models
from torchcaps.nn import DynamicRouting

SHAPE = (1, 20, 20)


@pytest.mark.parametrize("name", list_models())
def test_every_model_returns_from_its_folder(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = create_model(name, fit_shape(name, SHAPE), 3).eval()
    model.temperature = 0.5
    HubModel(model, class_names=("a", "b", "c")).save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    loaded = HubModel.from_pretrained(tmp_path)
    assert (loaded.description.name, loaded.description.class_names) == (name, ("a", "b", "c"))
    assert loaded.model.temperature == 0.5
    assert not loaded.training or not loaded.model.training
    state = model.state_dict()
    for key, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, state[key]), key


def test_card_of_bundled_weights(tmp_path: Path) -> None:
    assert tc.integrations.hub.HubModel is HubModel
    HubModel.from_bundled("mnist").save_pretrained(tmp_path)
    card: Any = hf.ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "torchcaps"
    assert card.data.pipeline_tag == "image-classification"
    (result,) = card.data.eval_results or []
    assert (result.dataset_name, result.metric_value) == ("mnist", tc.pretrained_card("mnist").test_accuracy)
    assert "light, centred digits" in card.text
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["name"], config["image_shape"]) == ("branched_capsnet", [1, 28, 28])
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        expected = create_model("branched_capsnet", pretrained="mnist")(images)
        assert torch.equal(HubModel.from_pretrained(tmp_path)(images).activations, expected.activations)


def test_options_return(tmp_path: Path) -> None:
    model = create_model("capsnet_small", SHAPE, 3, routing={"name": "dynamic", "iters": 5}, decoder=None)
    HubModel(model).save_pretrained(tmp_path)
    loaded = HubModel.from_pretrained(tmp_path).model
    assert loaded.decoder is None
    assert getattr(loaded.class_router, "iters", None) == 5


def test_repository_is_read_from_the_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--me--net" / "snapshots" / ("a" * 40)
    HubModel(create_model("cnn_small", SHAPE, 3)).save_pretrained(snapshot)
    (tmp_path / "models--me--net" / "refs").mkdir()
    (tmp_path / "models--me--net" / "refs" / "main").write_text("a" * 40)
    loaded = HubModel.from_pretrained("me/net", cache_dir=tmp_path, local_files_only=True)
    assert loaded.description.name == "cnn_small"
    with raises_about(CheckpointError, "source", "me/other"):
        HubModel.from_pretrained("me/other", cache_dir=tmp_path, local_files_only=True)
    with raises_about(CheckpointError, "source", "no/such/folder"):
        HubModel.from_pretrained("no/such/folder", cache_dir=tmp_path, local_files_only=True)


def test_push_uploads_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no hub on loopback: the two calls that leave the machine are recorded.
    sent: dict[str, Any] = {}

    def upload(self: Any, *, folder_path: Path, repo_id: str, **options: Any) -> str:
        sent.update(repo=repo_id, files=sorted(file.name for file in folder_path.iterdir()))
        return "https://example.invalid/commit"

    monkeypatch.setattr(
        hf.HfApi, "create_repo", lambda self, repo_id, **options: hf.RepoUrl(f"https://hf.co/{repo_id}")
    )
    monkeypatch.setattr(hf.HfApi, "upload_folder", upload)
    HubModel(create_model("cnn_small", SHAPE, 3)).push_to_hub("me/net")
    assert sent == {"repo": "me/net", "files": ["README.md", "config.json", "model.safetensors"]}


def test_networks_that_cannot_be_described_are_refused() -> None:
    with raises_about(ConfigError, "options", "DynamicRouting"):
        HubModel(create_model("capsnet_small", SHAPE, 3, routing=DynamicRouting()))
    with raises_about(ConfigError, "class_names", 1):
        HubModel(create_model("cnn_small", SHAPE, 3), class_names=("a",))
    with raises_about(ConfigError, "model", "ImageModel"):
        HubModel(tc.models.ImageModel(SHAPE, 3))


def hostile(entries: Any) -> bytes:
    return json.dumps(entries).encode()


GOOD: dict[str, Any] = {
    "name": "cnn_small",
    "options": {},
    "image_shape": [1, 20, 20],
    "class_names": ["a", "b", "c"],
    "num_labels": 1,
}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "no_such_model"},
        {"image_shape": [10**6, 10**6, 10**6]},
        {"image_shape": "large"},
        {"class_names": []},
        {"num_labels": 9},
        {"options": {"nothing": 1}},
        {"options": 3},
        {"temperature": -1},
    ],
)
def test_hostile_metadata_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    state = create_model("cnn_small", SHAPE, 3).state_dict()
    save_file(state, tmp_path / "model.safetensors", {"torchcaps": json.dumps({**GOOD, **change})})
    with raises_about(CheckpointError, "weights"):
        HubModel.from_pretrained(tmp_path)


def test_other_files_are_never_read(tmp_path: Path) -> None:
    HubModel(create_model("cnn_small", SHAPE, 3)).save_pretrained(tmp_path)
    for name in ("config.json", "README.md"):
        (tmp_path / name).unlink()
        # Reading a pipe without a writer would wait for ever.
        os.mkfifo(tmp_path / name)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert HubModel.from_pretrained(tmp_path).description.name == "cnn_small"
    (tmp_path / "model.safetensors").unlink()
    with raises_about(CheckpointError, "weights", "model.safetensors"):
        HubModel.from_pretrained(tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")
    with raises_about(CheckpointError, "weights", "model.safetensors"):
        HubModel.from_pretrained(tmp_path)
