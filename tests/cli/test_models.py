from __future__ import annotations

from pathlib import Path

import pytest

from shipping import ship
from torchcaps import create_model, list_models
from torchcaps.models import pretrained


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the one with the weights inside the package."""
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    return tmp_path


def test_bundled_weights_are_listed(folder: Path, ask, ask_json) -> None:
    assert "no bundled weights" in ask("models")[1]
    assert "weights '" not in ask("models", "cnn_small")[1]
    ship(folder, "mnist")
    ship(folder, "toys", model="cnn_small", options={}, research_only=True, data_licence="research use only")
    entries = {entry["name"]: entry["pretrained"] for entry in ask_json("models")}
    assert {name: list(cards) for name, cards in entries.items() if cards} == {
        "capsnet_small": ["mnist"],
        "cnn_small": ["toys"],
    }
    assert entries["capsnet_small"]["mnist"]["test_accuracy"] == 0.9912
    words = [line.split() for line in ask("models")[1].splitlines()]
    assert ["mnist", "capsnet_small", "mnist", "99.12%", "CC", "BY-SA", "3.0"] in words
    assert ["toys", "cnn_small", "mnist", "99.12%", "research", "use", "only"] in words


def test_model_page_lists_cards(folder: Path, ask) -> None:
    ship(folder, "mnist", commit="0123abc")
    ship(folder, "toys", model="cnn_small", options={}, research_only=True, data_licence="research use only")
    _, out, _ = ask("models", "capsnet_small")
    assert "weights 'mnist': 99.12% of 10,000 test images" in out
    assert "mnist (CC BY-SA 3.0)" in out
    assert "5 epochs in 2.0 minutes, seed 7" in out
    assert "0123abc" in out
    assert "Light digits on black. Not for letters." in out
    _, out, _ = ask("models", "cnn_small")
    assert "research only" in out
    assert "commit    unknown" in out


def test_models_are_listed_with_parameters(ask, ask_json) -> None:
    entries = {entry["name"]: entry for entry in ask_json("models")}
    assert sorted(entries) == list_models()
    assert entries["capsnet"]["parameters"] == 8_215_728
    code, out, _ = ask("models")
    assert code == 0
    assert "8,215,728" in out
    assert entries["capsnet_small"]["description"] in out


def test_pattern_filters_list(ask_json) -> None:
    assert [entry["name"] for entry in ask_json("models", "cnn*")] == list_models("cnn*")


def test_model_page(ask, ask_json) -> None:
    entry = ask_json("models", "capsnet_small")
    model = create_model("capsnet_small")
    assert sum(entry["parts"].values()) == entry["parameters"] == sum(p.numel() for p in model.parameters())
    assert (entry["loss"], entry["decoder"]) == ("margin", "DeconvDecoder")
    assert entry["options"]["decoder"] == "deconv"
    _, out, _ = ask("models", "capsnet_small")
    assert "model.options.routing" in out
    assert ask_json("models", "cnn_small")["decoder"] is None


@pytest.mark.parametrize("name", list_models())
def test_every_option_has_values_and_a_meaning(name: str, ask_json) -> None:
    entry = ask_json("models", name)
    assert set(entry["about_options"]) == set(entry["options"])
    for about in entry["about_options"].values():
        assert about["values"]
        assert about["meaning"]


def test_option_lists_its_values(ask) -> None:
    lines = ask("models", "capsnet_small")[1].splitlines()
    (line,) = [line for line in lines if line.startswith("model.options.decoder")]
    assert "deconv, mlp, none" in line
