from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchcaps.data import ImageDataset, InMemoryDataset, load_data
from torchcaps.train import Run


def test_table_result_and_figure(run: Path, ask, ask_json) -> None:
    document = ask_json("eval", run, "--protocol", "corruptions")
    saved = json.loads((run / "protocol-corruptions.json").read_text())
    assert saved["rows"] == document["rows"]
    assert Path(document["figure"]).read_bytes().startswith(b"\x89PNG")
    code, out, err = ask("eval", run, "--protocol", "corruptions")
    assert (code, err) == (0, "")
    assert "gaussian noise" in out
    assert "protocol-corruptions.png" in out


def test_unknown_protocol(run: Path, ask) -> None:
    code, _, err = ask("eval", run, "--protocol", "corruption")
    assert code == 2
    assert err.strip() == "unknown protocol 'corruption'; did you mean 'corruptions'?"


def test_protocol_rejects_data_options(run: Path, ask) -> None:
    code, _, err = ask("eval", run, "--protocol", "corruptions", "--split", "val")
    assert code == 2
    assert err.startswith("--protocol: ")


def test_two_runs_beside_each_other(run: Path, cnn_run: Path, ask, ask_json) -> None:
    document = ask_json("eval", run, cnn_run, "--protocol", "corruptions")
    assert [Path(each["run"]) for each in document["results"]] == [run, cnn_run]
    for folder, result in zip((run, cnn_run), document["results"], strict=True):
        assert json.loads((folder / "protocol-corruptions.json").read_text())["rows"] == result["rows"]
    code, out, err = ask("eval", run, cnn_run, "--protocol", "corruptions")
    assert (code, err) == (0, "")
    assert f"{run.name}: gaussian noise" in out
    assert f"{cnn_run.name}: gaussian noise" in out


def test_pose_of_too_few_images(run: Path, ask) -> None:
    code, _, err = ask("eval", run, "--protocol", "pose")
    assert code == 2
    assert "too few" in err


@pytest.fixture
def more_images(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is tested on digits, scaled to the size and classes of its images."""

    def load(self: Run, split: str, **_: object) -> ImageDataset:
        digits, own = load_data("digits", split), self.load_model()
        images = digits.images.expand(-1, own.image_shape[0], -1, -1)[:, :, : own.image_shape[1], : own.image_shape[2]]
        return InMemoryDataset.from_arrays(images, digits.labels % own.num_classes)

    monkeypatch.setattr(Run, "load_data", load)


def test_pose_table_and_curves(run: Path, more_images: None, ask) -> None:
    code, out, err = ask("eval", run, "--protocol", "pose")
    assert (code, err) == (0, "")
    assert "pose of the class" in out
    assert "rotation, degrees" in out
    assert json.loads((run / "protocol-pose.json").read_text())["curves"][0]["name"] == "rotation"
    assert (run / "figures" / "protocol-pose.png").read_bytes().startswith(b"\x89PNG")


def test_attacks_with_options(run: Path, ask, ask_json) -> None:
    document = ask_json("eval", run, "--protocol", "adversarial", "attacks=fgsm", "epsilon=0.1", "images=4")
    assert document["columns"] == ["success", "rejected", "undetected"]
    assert {row["name"].split(", ")[0] for row in document["rows"]} == {"no attack", "fgsm"}
    code, out, err = ask("eval", run, "--protocol", "adversarial", "attacks=fgsm", "images=4")
    assert (code, err) == (0, "")
    assert "fgsm, reconstruction" in out


@pytest.mark.parametrize(
    ("protocol", "word", "parts"),
    [
        ("adversarial", "steps=3", ("steps", "epsilon")),
        ("corruptions", "epsilon=0.1", ("epsilon", "no option")),
        ("adversarial", "epsilon=7", ("epsilon", "7")),
    ],
)
def test_unknown_and_bad_options(run: Path, ask, protocol: str, word: str, parts: tuple[str, ...]) -> None:
    code, out, err = ask("eval", run, "--protocol", protocol, word)
    assert (code, out) == (2, "")
    assert all(part in err for part in parts)
