from __future__ import annotations

from torchcaps import create_model, list_models


def test_all_models_are_listed_with_their_parameters(ask, ask_json) -> None:
    entries = {entry["name"]: entry for entry in ask_json("models")}
    assert sorted(entries) == list_models()
    assert entries["capsnet"]["parameters"] == 8_215_728
    code, out, _ = ask("models")
    assert code == 0
    assert "8,215,728" in out
    assert entries["capsnet_small"]["description"] in out


def test_a_pattern_lists_some(ask_json) -> None:
    assert [entry["name"] for entry in ask_json("models", "cnn*")] == list_models("cnn*")


def test_one_model_is_described(ask, ask_json) -> None:
    entry = ask_json("models", "capsnet_small")
    model = create_model("capsnet_small")
    assert sum(entry["parts"].values()) == entry["parameters"] == sum(p.numel() for p in model.parameters())
    assert (entry["loss"], entry["decoder"]) == ("margin", "DeconvDecoder")
    assert entry["options"]["decoder"] == "deconv"
    _, out, _ = ask("models", "capsnet_small")
    assert "model.options.routing" in out
    assert ask_json("models", "cnn_small")["decoder"] is None
