from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from raising import raises_about
from shipping import card_table, ship
from torchcaps.errors import CheckpointError, ConfigError, MissingPackageError, UnknownNameError
from torchcaps.models import pretrained
from torchcaps.models._weights import save_weights

MOST_BYTES = 8_000_000
SHIPPED = tc.list_pretrained()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the one inside the package."""
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    return tmp_path


def test_empty_folder_lists_nothing(folder: Path) -> None:
    assert tc.list_pretrained() == []
    for ask in (lambda: tc.pretrained_card("mnist"), lambda: tc.create_model("capsnet_small", pretrained="mnist")):
        with raises_about(UnknownNameError, "unknown pretrained weights 'mnist'", "none"):
            ask()


def test_weights_are_listed_by_name(folder: Path) -> None:
    ship(folder, "mnist")
    ship(folder, "multimnist", model="cnn_small", options={})
    assert tc.list_pretrained() == ["mnist", "multimnist"]
    assert tc.list_pretrained("multi*") == ["multimnist"]
    with raises_about(UnknownNameError, "unknown pretrained weights 'mnits'", "mnist"):
        tc.pretrained_card("mnits")


def test_card_round_trip(folder: Path) -> None:
    ship(folder, "mnist", commit="0123")
    card = tc.pretrained_card("mnist")
    for name, value in card_table(commit="0123").items():
        if name != "recipe":
            assert getattr(card, name) == value
    assert card.recipe["model"]["name"] == "capsnet_small"
    assert (card.name, card.weights, card.embedded_accuracy) == ("mnist", folder / "mnist.safetensors", None)
    assert card.about == "capsnet_small on mnist, test accuracy 99.12%"


@pytest.mark.parametrize("half", [False, True])
def test_model_has_weights_and_evaluates(folder: Path, half: bool) -> None:
    sizes = {"image_shape": (3, 30, 32), "num_classes": 4, "class_names": tuple("abcd")}
    shipped = ship(folder, "mnist", half=half, **sizes)
    model = tc.create_model("capsnet_small", pretrained="mnist")
    assert not model.training
    assert (model.image_shape, model.num_classes) == ((3, 30, 32), 4)
    assert isinstance(model, tc.models.CapsNet)
    assert getattr(model.head.routing, "iters", None) == 2
    for name, value in shipped.state_dict().items():
        found = model.state_dict()[name]
        assert found.dtype == value.dtype
        assert torch.equal(found, value.half().to(value.dtype) if half else value)


def test_matching_options_are_accepted(folder: Path) -> None:
    ship(folder, "mnist")
    agreeing = {"routing": {"name": "dynamic", "iters": 2}, "decoder": "deconv"}
    tc.create_model("capsnet_small", (1, 28, 28), 10, pretrained="mnist", **agreeing)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"image_shape": (3, 32, 32)}, ["image_shape:", (1, 28, 28), "got (3, 32, 32)", "'mnist'"]),
        ({"routing": "em"}, ["routing:", {"name": "dynamic", "iters": 2}, "got 'em'"]),
        ({"decoder": "mlp"}, ["decoder:", "expected 'deconv'", "got 'mlp'"]),
        ({"decodr": "mlp"}, ["unknown option 'decodr'", "'capsnet_small'", "'decoder'"]),
    ],
)
def test_conflicting_options_are_refused(folder: Path, given: dict, named: list) -> None:
    ship(folder, "mnist")
    with raises_about(ConfigError, *named):
        tc.create_model("capsnet_small", pretrained="mnist", **given)


def test_weights_of_another_network(folder: Path) -> None:
    ship(folder, "mnist")
    with raises_about(ConfigError, "pretrained:", "cnn_small", "got 'mnist'", "'mnist' of capsnet_small"):
        tc.create_model("cnn_small", pretrained="mnist")
    ship(folder, "digits", model="cnn_small", options={}, data={"name": "digits", "options": {}})
    with raises_about(ConfigError, "pretrained:", "got 'mnist'", "bundled for it: 'digits'"):
        tc.create_model("cnn_small", pretrained="mnist")


def test_weights_are_found_by_data_set(folder: Path) -> None:
    ship(folder, "mnist")
    worse = ship(folder, "mnist_cnn", model="cnn_small", options={}, test_accuracy=0.98)
    assert_same(tc.create_model("cnn_small", pretrained="mnist"), worse)
    better = ship(folder, "mnist_another", model="cnn_small", options={"dropout": 0.1}, test_accuracy=0.99)
    for weight in better.parameters():
        weight.data.zero_()
    save_weights(better.state_dict(), folder / "mnist_another.safetensors")
    assert_same(tc.create_model("cnn_small", pretrained="mnist"), better)
    assert_same(tc.create_model("cnn_small", pretrained="mnist_cnn"), worse)


def assert_same(model: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, value in other.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


@pytest.mark.parametrize("text", [None, "no toml", "model = 'cnn_small'", b"\xff\xfe"])
def test_damaged_card(folder: Path, text: str | bytes | None) -> None:
    ship(folder, "mnist")
    file = folder / "mnist.toml"
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with raises_about(CheckpointError, "pretrained:", "'mnist'", "mnist.toml"):
        tc.pretrained_card("mnist")


def test_card_with_unknown_key(folder: Path) -> None:
    ship(folder, "mnist", colour="blue")
    with raises_about(CheckpointError, "pretrained:", "'colour'"):
        tc.pretrained_card("mnist")


def test_damaged_weights(folder: Path) -> None:
    ship(folder, "mnist")
    (folder / "mnist.safetensors").write_bytes(b"\x80\x02}q\x00.")
    with raises_about(CheckpointError, "weights:", "mnist.safetensors"):
        tc.create_model("capsnet_small", pretrained="mnist")


def test_bundled_weights_are_small_and_complete() -> None:
    files = [file for file in pretrained.FOLDER.iterdir() if file.name != "README.md"]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    bundled = [name for name in SHIPPED if not tc.pretrained_card(name).research_only]
    expected = {f"{name}.toml" for name in SHIPPED} | {f"{name}.safetensors" for name in bundled}
    assert {file.name for file in files} == expected


def test_weights_for_research_are_outside_the_package_and_have_a_checksum() -> None:
    separate = [tc.pretrained_card(name) for name in SHIPPED if tc.pretrained_card(name).research_only]
    assert [card.name for card in separate] == ["smallnorb"]
    for card in separate:
        file = Path(__file__).parents[2] / "weights" / f"{card.name}.safetensors"
        assert card.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def separate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights outside the package, which are not on this machine; the folder that has them."""
    source = folder.parent / "released"
    source.mkdir(exist_ok=True)
    ship(folder, "toys")
    file = (folder / "toys.safetensors").rename(source / "toys.safetensors")
    checksum = hashlib.sha256(file.read_bytes()).hexdigest()
    card = folder / "toys.toml"
    card.write_text(f'sha256 = "{checksum}"\n{card.read_text()}')
    monkeypatch.setattr(pretrained, "CLONE", folder / "no clone")
    monkeypatch.setattr(pretrained, "user_cache", lambda: folder / "cache")
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    return source


def test_missing_separate_weights_give_the_command(folder: Path, separate: Path) -> None:
    assert tc.list_pretrained() == ["toys"]
    with raises_about(
        CheckpointError, "pretrained:", "toys.safetensors", folder / "cache", "torchcaps data download weights/toys"
    ):
        tc.create_model("capsnet_small", pretrained="toys")


@pytest.mark.parametrize("place", ["cache", "own"])
def test_separate_weights_are_found(folder: Path, separate: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(folder / "own"))
    (folder / place / "weights").mkdir(parents=True)
    (separate / "toys.safetensors").rename(folder / place / "weights" / "toys.safetensors")
    assert tc.create_model("capsnet_small", pretrained="toys").num_classes == 10


def test_light_installation_has_no_cache(folder: Path, separate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise MissingPackageError("platformdirs")

    monkeypatch.setattr(pretrained, "user_cache", missing)
    with raises_about(CheckpointError, "pretrained:", "TORCHCAPS_DATA/weights"):
        tc.create_model("capsnet_small", pretrained="toys")


@pytest.mark.parametrize("name", SHIPPED)
def test_cards_match_their_networks(name: str) -> None:
    card = tc.pretrained_card(name)
    model = tc.create_model(card.model, pretrained=name)
    assert sum(weight.numel() for weight in model.parameters()) == card.parameters
    assert len(card.class_names) == card.num_classes
    assert (card.recipe["model"]["name"], card.recipe["data"]["name"]) == (card.model, card.data["name"])
    assert card.limits
    assert all(sentence.endswith(".") for sentence in card.limits)
    assert card.research_only or card.data["name"] != "smallnorb"
    # No file or folder of the machine that it was trained on.
    assert not re.search(r"['\"]/", str([card.data, card.recipe, card.limits]))


def test_other_number_of_classes_gets_a_new_head() -> None:
    whole = tc.create_model("branched_capsnet", pretrained="mnist")
    with pytest.warns(UserWarning, match=r"5 classes instead of 10.*decoder"):
        model = tc.create_model("branched_capsnet", pretrained="mnist", num_classes=5)
    assert model(torch.rand(2, 1, 28, 28)).activations.shape == (2, 5)
    kept = [name for name, tensor in model.state_dict().items() if torch.equal(tensor, whole.state_dict()[name])]
    assert any(name.startswith("stem.") for name in kept)
    assert not any(name.startswith("decoder.") for name in kept)
