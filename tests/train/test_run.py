from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from limits import memory_limit
from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.models import create_model
from torchcaps.models._base import MAX_CLASSES, MAX_SIDE
from torchcaps.train import Run, load_recipe
from torchcaps.train._record import record_problem
from torchcaps.train._tables import write_metrics
from torchcaps.train.checkpoint import KEY, CheckpointFiles, RunState, checkpoint_path, run_entry


def test_new_folder_is_reopened(tmp_path):
    run = Run.create(load_recipe("digits", ["seed=7"]), tmp_path / "a")
    run.update_record(status="running", seed=7)
    assert Run.open(tmp_path / "a") == run
    assert run.recipe.seed == run.record["seed"] == 7
    assert run.status == "running"
    assert run.results == run.metrics() == {}
    assert run.figures.is_dir()


def test_default_folder_names_are_unique(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (Run.create(load_recipe()) for _ in range(2))
    assert first.path != second.path
    assert first.path.parent.name == "runs"
    assert first.path.name.startswith("digits-")


def test_metrics_round_trip(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    write_metrics(run.path, [{"epoch": 1, "val_loss": 0.1}, {"epoch": 2, "val_loss": 0.25}])
    assert run.metrics() == {"epoch": [1, 2], "val_loss": [0.1, 0.25]}


def test_data_of_recipe(tmp_path):
    assert len(Run.create(load_recipe(), tmp_path / "a").load_data("val")) == 500


def test_existing_folder_is_refused(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    with raises_about(CheckpointError, "folder", run.path, "not empty"):
        Run.create(load_recipe(), run.path)
    run.update_record(status="running")
    with raises_about(CheckpointError, "folder", run.path, "resume it"):
        Run.create(load_recipe(), run.path)


def test_no_run(tmp_path):
    with raises_about(CheckpointError, "run", "recipe.toml", tmp_path):
        Run.open(tmp_path)


def test_damaged_files(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    for text in ("{", "[]", "{}", "[" * 100_000, '{"status": 3}'):
        (run.path / "run.json").write_text(text)
        with raises_about(CheckpointError, "run", run.path / "run.json"):
            _ = run.record
    for content in (b"seed = 1", b"\xff", b"seed = " + b"1" * 6000, b"a = " + b"[" * 100_000):
        (run.path / "recipe.toml").write_bytes(content)
        with pytest.raises(ConfigError, match=r"recipe\.toml: "):
            Run.open(run.path)
    for name, read in (("metrics.csv", run.metrics), ("diagnostics.csv", run.diagnostics)):
        for text in ("a,b\n1\n", "epoch,layer\nx,y\n", "epoch,layer,iteration,measure,value\nx,y,z,a,b\n"):
            (run.path / name).write_text(text)
            with raises_about(CheckpointError, "run", run.path / name):
                read()


@pytest.mark.parametrize("shape", ["abc", [1, 2], None, [1, "x", 2]])
def test_damaged_image_shape(tmp_path, shape):
    run = Run.create(load_recipe(), tmp_path / "a")
    run.update_record(status="finished", image_shape=shape, num_classes=10)
    run.weights.write_bytes(b"")
    with raises_about(CheckpointError, "run", "image_shape"):
        run.load_model()


def test_every_size_of_a_model_may_be_recorded():
    assert record_problem({"status": "running", "image_shape": [1, MAX_SIDE], "num_classes": MAX_CLASSES}) is None
    assert record_problem({"status": "running", "image_shape": [1, MAX_SIDE + 1]}) is not None


@pytest.mark.parametrize("name", ["figures", "checkpoints"])
def test_symbolic_link_in_a_run_folder(tmp_path, name):
    run = Run.create(load_recipe(), tmp_path / "a")
    (run.path / name).rmdir()
    (run.path / name).symlink_to(tmp_path)
    with raises_about(CheckpointError, "run", run.path / name):
        getattr(run, name)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_linked_lock_is_not_emptied(tmp_path, link):
    (tmp_path / "victim").write_text("precious")
    run = Run.create(load_recipe(), tmp_path / "a")
    (run.path / ".lock").unlink(missing_ok=True)
    getattr(run.path / ".lock", link)(tmp_path / "victim")
    with raises_about(CheckpointError, "run", run.path / ".lock"), run.locked():
        pass
    assert (tmp_path / "victim").read_text() == "precious"


def test_folder_of_another_process_is_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    run = Run(tmp_path / "a", load_recipe())
    with run.locked(), raises_about(CheckpointError, "run", run.path):
        Run.create(load_recipe("digits", ["seed=1"]), run.path)
    assert not (run.path / "recipe.toml").exists()


def claim(start):
    start.wait()
    return str(Run.create(load_recipe()).path)


def test_concurrent_starts_get_separate_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        paths = [each.result() for each in [pool.submit(claim, start) for _ in range(8)]]
    assert len(set(paths)) == 8


def test_no_model_before_end(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    run.update_record(status="stopped")
    with raises_about(CheckpointError, "run", run.path, "stopped"):
        run.load_model()


def test_lock_admits_one_process(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    with (
        run.locked(),
        raises_about(CheckpointError, "run", run.path),
        run.locked(),
    ):
        pass
    with run.locked():
        pass


def test_unfinished_run_with_sizes_beyond_memory(tmp_path):
    recipe = load_recipe("digits", ["model.name=cnn_small", "model.options={}"])
    run = Run.create(recipe, tmp_path / "a")
    weights = create_model("cnn_small").state_dict()
    state = RunState(best={"epoch": 1.0, "step": 1.0, "weights": weights})
    run.update_record(status="stopped", image_shape=[1, 28, 28], num_classes=10)
    entry = run_entry(recipe, state, torch.zeros(3), 1, run.record)
    CheckpointFiles().save_checkpoint({KEY: entry}, checkpoint_path(run.checkpoints, 1, 1))
    with pytest.warns(UserWarning, match="not finished"):
        assert torch.equal(run.load_model().state_dict()["head.1.weight"], weights["head.1.weight"])
    run = Run.open(run.path)
    run.update_record(image_shape=[1, 15_000, 15_000])
    unfinished = pytest.warns(UserWarning, match="not finished")
    with unfinished, memory_limit(10**9), raises_about(CheckpointError, "weights", run.path, "head"):
        run.load_model()
