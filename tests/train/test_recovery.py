from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError, WriteError
from torchcaps.train import Run, fit, resume
from torchcaps.train._callback import RunCallback
from torchcaps.train.checkpoint import list_checkpoints

from .conftest import MakeRecipe

if sys.platform != "win32":
    import resource

Damage = Callable[[Path], object]


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def link(file: Path) -> None:
    victim = file.parent.parent / "victim"
    victim.write_text("precious")
    file.unlink()
    file.symlink_to(victim)


@pytest.fixture
def killed(recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that ended without a word after its first epoch."""

    with monkeypatch.context() as patch:
        save = RunCallback._save

        def save_and_end(self: RunCallback, trainer: Any) -> None:
            save(self, trainer)
            if len(self.state.rows) == 1:
                raise KeyError("killed")

        patch.setattr(RunCallback, "_save", save_and_end)
        with pytest.raises(KeyError):
            fit(recipe(), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    from torchcaps.train import load_recipe

    small = ["data.batch_size=16", "trainer.epochs=3", "trainer.checkpoint_every=2", "optim.warmup=2"]
    changes = [f"data.options.path={pictures}", "trainer.accelerator=cpu", *small]
    return fit(load_recipe("folder", changes), tmp_path_factory.mktemp("whole") / "run").path


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit the size of files, which a writer meets as it meets a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_full_disk_is_named_and_the_run_resumes(recipe: MakeRecipe, tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    with file_size_limit(10_000), raises_about(WriteError, "epoch-0001-step-00000002.ckpt", "large"):
        fit(recipe(), folder)
    assert Run.open(folder).status == "failed"
    assert not list(folder.rglob("*.part"))
    run = resume(folder)
    assert run.weights.read_bytes() == (whole / "weights.safetensors").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_first_error_is_reported_when_nothing_can_be_written(recipe: MakeRecipe, tmp_path: Path) -> None:
    with file_size_limit(10), raises_about(WriteError, "recipe.toml"):
        fit(recipe(), tmp_path / "run")


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_disk_that_fills_up_does_not_hide_the_first_error(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunCallback._save

    def save_without_room(self: RunCallback, trainer: Any) -> None:
        # The record of the failure cannot be written either.
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        save(self, trainer)

    monkeypatch.setattr(RunCallback, "_save", save_without_room)
    with file_size_limit(10**9), raises_about(WriteError, "epoch-0001-step-00000002.ckpt", "large") as caught:
        fit(recipe(), tmp_path / "run")
    assert "run.json" in "".join(caught.value.__notes__)


def test_run_in_use_is_not_resumed(killed: Path) -> None:
    run, before = Run.open(killed), (killed / "run.json").read_bytes()
    with run.locked(), raises_about(CheckpointError, "run", killed):
        resume(killed)
    assert (killed / "run.json").read_bytes() == before


def test_file_in_the_place_of_the_checkpoints(killed: Path) -> None:
    shutil.rmtree(killed / "checkpoints")
    (killed / "checkpoints").write_text("")
    with pytest.warns(UserWarning, match="no checkpoint"), raises_about(WriteError, killed / "checkpoints"):
        resume(killed)


@pytest.mark.parametrize("damage", [remove, empty, halve, make_folder, link])
@pytest.mark.parametrize("name", ["run.json", "recipe.toml"])
def test_record_and_recipe_are_rebuilt(killed: Path, whole: Path, name: str, damage: Damage) -> None:
    damage(killed / name)
    with pytest.warns(UserWarning, match="in a checkpoint"):
        run = resume(killed)
    assert run.weights.read_bytes() == (whole / "weights.safetensors").read_bytes()
    assert (killed / "recipe.toml").read_bytes() == (whole / "recipe.toml").read_bytes()
    assert run.record["image_shape"] == Run.open(whole).record["image_shape"]
    victim = killed.parent / "victim"
    assert not victim.exists() or victim.read_text() == "precious"


@pytest.mark.parametrize("change", ["seed = 0->seed = 1", "epochs = 3->epochs = 7"])
def test_changed_recipe_is_restored(killed: Path, whole: Path, change: str) -> None:
    file = killed / "recipe.toml"
    old, _, new = change.partition("->")
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.warns(UserWarning, match="which changed"):
        run = resume(killed)
    assert file.read_bytes() == (whole / "recipe.toml").read_bytes()
    assert run.weights.read_bytes() == (whole / "weights.safetensors").read_bytes()


@pytest.mark.parametrize(("name", "error"), [("run.json", CheckpointError), ("recipe.toml", ConfigError)])
def test_without_a_checkpoint_damage_is_refused(killed: Path, name: str, error: type[CheckpointError]) -> None:
    shutil.rmtree(killed / "checkpoints")
    halve(killed / name)
    with raises_about(error, name):
        resume(killed)


def test_changed_recipe_without_a_checkpoint_is_refused(killed: Path) -> None:
    shutil.rmtree(killed / "checkpoints")
    file = killed / "recipe.toml"
    file.write_text(file.read_text().replace("seed = 0", "seed = 1"))
    with raises_about(ConfigError, "recipe:", file):
        resume(killed)


def test_all_checkpoints_damaged_suggests_restart(killed: Path, whole: Path) -> None:
    paths = list_checkpoints(killed / "checkpoints")
    for path in paths:
        path.write_bytes(b"")
    with raises_about(CheckpointError, "checkpoint:", "--restart"), pytest.warns(UserWarning, match="one before"):
        resume(killed)
    with pytest.warns(UserWarning, match="starting again"):
        run = resume(killed, restart=True)
    assert run.weights.read_bytes() == (whole / "weights.safetensors").read_bytes()
    kept = {path.name for path in (killed / "checkpoints-damaged-1").iterdir()}
    assert kept == {path.name for path in paths}


def test_restart_of_a_finished_run_is_refused(whole: Path) -> None:
    with raises_about(ConfigError, "restart:", whole):
        resume(whole, restart=True)


def test_deleted_checkpoints_are_noted(killed: Path, whole: Path) -> None:
    for path in list_checkpoints(killed / "checkpoints"):
        path.unlink()
    with pytest.warns(UserWarning, match="no checkpoint"):
        run = resume(killed)
    assert run.weights.read_bytes() == (whole / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("damage", [remove, empty, halve, make_folder, link])
@pytest.mark.parametrize("name", ["metrics.csv", "weights.safetensors"])
def test_results_of_a_finished_run_are_written_again(whole: Path, tmp_path: Path, name: str, damage: Damage) -> None:
    copy = shutil.copytree(whole, tmp_path / "run")
    damage(copy / name)
    with pytest.warns(UserWarning, match="damaged"):
        run = resume(copy)
    assert (copy / name).read_bytes() == (whole / name).read_bytes()
    assert run.status == "finished"


def test_extension_that_was_cut_short(whole: Path, tmp_path: Path) -> None:
    # run.json has 4 epochs, recipe.toml still 3.
    copy = shutil.copytree(whole, tmp_path / "run")
    old = (copy / "recipe.toml").read_bytes()
    assert resume(copy, epochs=4).recipe.trainer.epochs == 4
    record = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**record, "status": "running"}))
    (copy / "recipe.toml").write_bytes(old)
    with pytest.warns(UserWarning, match="which changed"):
        assert Run.open(copy).recipe.trainer.epochs == 4


@pytest.mark.parametrize("damage", [remove, empty, halve])
def test_metrics_and_newest_checkpoint_of_a_finished_run(whole: Path, tmp_path: Path, damage: Damage) -> None:
    copy = shutil.copytree(whole, tmp_path / "run")
    damage(copy / "metrics.csv")
    empty(list_checkpoints(copy / "checkpoints")[0])
    with pytest.warns(UserWarning, match="damaged|using the one before"):
        run = resume(copy)
    assert run.metrics()["epoch"] == [1, 2, 3]
    assert run.weights.read_bytes() == (whole / "weights.safetensors").read_bytes()


def test_ctrl_c_during_the_test_stops(
    recipe: MakeRecipe, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "torchcaps.train._runner.save_weights", lambda *args, **options: signal.raise_signal(signal.SIGINT)
        )
        run = fit(recipe(), tmp_path / "run")
    assert (run.status, run.record["signal"]) == ("stopped", "SIGINT")
    assert resume(run.path).weights.read_bytes() == (whole / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("resumed", [False, True])
def test_ctrl_c_before_the_first_step_is_recorded(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("torchcaps.train._runner.remove_parts", lambda folder: signal.raise_signal(signal.SIGINT))
        run = fit(recipe(), tmp_path / "run")
        if resumed:
            run = resume(tmp_path / "run")
    assert (run.status, run.record["signal"]) == ("stopped", "SIGINT")
    assert resume(tmp_path / "run").status == "finished"
