from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback

from refusing import refused

from .conftest import CLASSES, train_in


def test_test_split_per_class(run: Path, ask, ask_json) -> None:
    document = ask_json("eval", run)
    assert document["split"] == "test"
    assert document["count"] == 6
    assert tuple(document["per_class"]) == CLASSES
    saved = json.loads((run / "evaluation.json").read_text())
    assert {key: value for key, value in document.items() if key not in ("run", "crops", "seconds")} == {
        key: value for key, value in saved.items() if key not in ("seconds", "weights_sha256")
    }
    code, out, _ = ask("eval", run)
    assert code == 0
    assert out.startswith(f"accuracy {document['accuracy']:.2%} on 6 images of pictures, test\n")
    assert all(name in out for name in CLASSES)


def test_metrics_are_printed_with_their_intervals(run: Path, ask, ask_json) -> None:
    metrics = ask_json("eval", run)["metrics"]
    code, out, _ = ask("eval", run)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("F1 (macro)")]
    low, high = metrics["values"]["f1_macro"]["interval"]
    assert line.split()[2:] == [f"{metrics['values']['f1_macro']['value']:.2%}", f"{low:.2%}", "to", f"{high:.2%}"]
    (line,) = [line for line in out.splitlines() if line.startswith("eel")]
    assert line.split()[1] == str(metrics["per_class"][2]["support"])
    assert "nan" not in out.lower()


def test_two_runs_on_the_same_images(run: Path, cnn_run: Path, ask, ask_json) -> None:
    found = ask_json("eval", run, cnn_run)
    assert found["count"] == 6
    assert set(found["metrics"]["accuracy"]) == {"first", "second", "difference", "interval"}
    code, out, _ = ask("eval", run, cnn_run)
    assert code == 0
    assert "capsules" in out.splitlines()[0]
    assert "cnn" in out.splitlines()[0]
    refused(ask, "eval", run, cnn_run, "--crops", "13", about=["run:", "two runs"])
    refused(ask, "eval", run, cnn_run, run, about=["run:", "two runs"])


def test_other_split_keeps_saved_result(run: Path, ask_json) -> None:
    before = (run / "evaluation.json").read_text()
    assert ask_json("eval", run, "--split", "train")["count"] == 36
    assert (run / "evaluation.json").read_text() == before


def test_other_images_are_resized(run: Path, pictures: Path, ask_json, tmp_path: Path) -> None:
    from PIL import Image

    for file in pictures.rglob("*.png"):
        target = tmp_path / "larger" / file.relative_to(pictures)
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.open(file).convert("RGB").resize((50, 50)).save(target)
    document = ask_json("eval", run, "--data", "folder", f"path={tmp_path / 'larger'}")
    assert (document["data"], document["count"]) == ("larger", 48)


def test_errors_name_the_argument(run: Path, ask, pictures: Path, tmp_path: Path) -> None:
    code, _, err = ask("eval", run, "--data", "digits")
    assert code == 2
    assert err.startswith("data: expected the classes that the run was trained on ([bold]cat, dog & <b>, eel), got")
    assert ask("eval", run, "path=x")[2] == "option: expected --data NAME before options of a data set, got 'path=x'\n"
    assert ask("eval", run, "--split", "tets")[2].endswith("did you mean 'test'?\n")
    assert ask("eval", tmp_path)[2].startswith("run: expected a run folder")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    (unfinished / "weights.safetensors").unlink()
    shutil.rmtree(unfinished / "checkpoints")
    assert ask("eval", unfinished)[2].startswith("run: expected weights or a checkpoint, found neither in")


@pytest.mark.filterwarnings("default:run .* is not finished")
def test_newest_checkpoint_of_an_unfinished_run(run: Path, pictures: Path, ask, tmp_path: Path) -> None:
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    for name in ("weights.safetensors", "evaluation.json", "predictions.safetensors"):
        (unfinished / name).unlink()
    (unfinished / "run.json").write_text((run / "run.json").read_text().replace('"finished"', '"running"', 1))
    code, out, err = ask("eval", unfinished, "--json")
    assert code == 0
    assert "not finished" in err
    assert json.loads(out)["accuracy"] == json.loads((run / "evaluation.json").read_text())["accuracy"]
    # Nothing is stored as the result of the run.
    assert not (unfinished / "evaluation.json").exists()
    code, out, err = ask("predict", unfinished, next(pictures.rglob("*.png")), "--out", tmp_path / "figures")
    assert code == 0
    assert "weights of epoch" in err


@pytest.mark.filterwarnings("default:run .* is not finished")
@pytest.mark.parametrize("ema", ["0", "0.9"])
def test_checkpoint_in_the_middle_of_the_first_epoch(pictures: Path, ask, tmp_path: Path, ema: str) -> None:
    from torchcaps.train import Run, fit, load_recipe
    from torchcaps.train.checkpoint import newest_checkpoint

    class Crash(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == 2:
                raise OSError("power cut")

    options = [f"data.options.path={pictures}", "data.batch_size=8", "trainer.checkpoint_every=1"]
    recipe = load_recipe("folder", [*options, f"optim.ema_decay={ema}", "model.options.decoder=none"])
    with pytest.raises(OSError, match="power cut"):
        fit(recipe, tmp_path / "run", callbacks=Crash())
    code, out, err = ask("eval", tmp_path / "run", "--json")
    assert code == 0
    assert "weights of step 2 in epoch 1" in err
    assert json.loads(out)["count"] > 0
    run = Run.open(tmp_path / "run")
    checkpoint = newest_checkpoint(run.checkpoints, run.recipe)
    assert checkpoint is not None
    prefix = "ema.module." if float(ema) else "model."
    with pytest.warns(UserWarning, match="step 2 in epoch 1"):
        weights = run.load_model().state_dict()
    for name, tensor in weights.items():
        assert torch.equal(tensor, checkpoint.content["state_dict"][prefix + name]), name


def test_folder_with_some_of_the_classes(run: Path, pictures: Path, ask, ask_json, tmp_path: Path) -> None:
    few = tmp_path / "few"
    shutil.copytree(pictures / "eel", few / "eel")
    # All images of another folder, unless it has splits or the folder of the training is gone.
    document = ask_json("eval", run, "--data", "folder", f"path={few}")
    assert document["count"] == 16
    assert [row["support"] for row in document["metrics"]["per_class"]] == [0, 0, 16]
    assert ask_json("eval", run, "--data", "folder", f"path={few}", "--split", "test")["count"] == 2
    assert ask_json("eval", run, "--data", "folder", f"path={pictures}")["count"] < 16
    shutil.copytree(pictures / "eel", few / "newt")
    refused(ask, "eval", run, "--data", "folder", f"path={few}", about=["newt", "dog & <b>"])


def test_moved_images(pictures: Path, ask, ask_json, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "before")
    moved = train_in(tmp_path / "run", f"data.options.path={tmp_path / 'before'}")
    accuracy = ask_json("eval", moved)["accuracy"]
    (tmp_path / "before").rename(tmp_path / "after")
    refused(ask, "eval", moved, about=[tmp_path / "before", f"torchcaps eval {moved} --data folder path="])
    assert ask_json("eval", moved, "--data", "folder", f"path={tmp_path / 'after'}")["accuracy"] == accuracy


@pytest.mark.parametrize("name", ["run", "cnn_run"])
def test_every_kind_of_network_can_be_tested(name: str, request: pytest.FixtureRequest, ask_json) -> None:
    assert 0 <= ask_json("eval", request.getfixturevalue(name))["accuracy"] <= 1


def test_routing_diagnostics(run: Path, cnn_run: Path, ask, ask_json) -> None:
    document = ask_json("eval", run, "--diagnostics")
    (layer,) = document["diagnostics"]["layers"]
    assert (layer["name"], layer["parents"], len(layer["entropy"])) == ("head", 3, 3)
    assert "diagnostics" not in ask_json("eval", run)
    code, out, _ = ask("eval", run, "--diagnostics")
    assert code == 0
    assert "routing on 6 images" in out
    (line,) = [line for line in out.splitlines() if line.startswith("head")]
    assert line.split()[1] == "dynamic"
    assert f"{layer['dead']:.0%}" in line
    assert ask("eval", cnn_run, "--diagnostics")[1].endswith("this model has no routing\n")


def test_thirteen_crops(run: Path, pictures: Path, ask, ask_json, tmp_path: Path) -> None:
    refused(ask, "eval", run, "--crops", "13", about=["--crops:", "got 13"])
    options = ("model.name=cnn_small", "model.options={}", "data.augment.crop=14", f"data.options.path={pictures}")
    cropped = train_in(tmp_path / "cropped", *options)
    saved = (cropped / "evaluation.json").read_text()
    document = ask_json("eval", cropped, "--crops", "13")
    assert (document["crops"], document["count"]) == (13, 6)
    refused(ask, "eval", cropped, "--crops", "13", "--diagnostics", about=["--diagnostics:", "got --crops 13"])
    assert (cropped / "evaluation.json").read_text() == saved
