from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from raising import raises_about
from torchcaps.data import DATASETS, BatchLoader, load_data, register_data
from torchcaps.errors import CheckpointError, ConfigError, DataError, TorchcapsError
from torchcaps.evaluation import evaluate, fit_temperature
from torchcaps.train import Run, fit, load_recipe, resume
from torchcaps.train._attached import Attached
from torchcaps.train._callback import RunCallback
from torchcaps.train._loop import make_trainer
from torchcaps.train.module import CapsModule

from .step_hashes import read_steps, recorded

# Dropout, so that the generators are part of what has to come back.
CNN = ["model.name=cnn_small", "model.options={dropout = 0.5}"]
STEPS = 9


class Killed(BaseException):
    pass


def kill_at(monkeypatch: pytest.MonkeyPatch, hook: str, step: int) -> None:
    """Break off at a step as a kill does: before anything of that moment is written."""
    whole = getattr(RunCallback, hook)

    def broken(self, trainer, *args):
        if trainer.global_step == step:
            raise Killed
        whole(self, trainer, *args)

    monkeypatch.setattr(RunCallback, hook, broken)


def same_rows(run: Run, other: Run) -> bool:
    first, second = run.metrics(), other.metrics()
    del first["seconds"], second["seconds"]
    return first == second and run.diagnostics() == other.diagnostics()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, pictures):
    small = ["data.batch_size=16", "trainer.epochs=3", "trainer.checkpoint_every=2", "optim.warmup=2"]
    recipe = load_recipe("folder", [f"data.options.path={pictures}", "trainer.accelerator=cpu", *small, *CNN])
    return fit(recipe, tmp_path_factory.mktemp("whole") / "run")


def test_run_folder_is_complete(whole):
    names = {file.name for file in whole.path.iterdir()} - {".lock"}
    tables = {"metrics.csv", "diagnostics.csv", "evaluation.json"}
    tensors = {"weights.safetensors", "predictions.safetensors"}
    assert names == {"recipe.toml", "run.json", *tables, *tensors, "checkpoints", "figures"}
    record = whole.record
    assert record["status"] == "finished"
    assert record["images"] == {"train": 48, "val": 6, "test": 6}
    assert record["seconds"] > 0
    assert set(record["results"]) == {"test_accuracy", "test_errors", "test_images", "best", "final"}
    assert record["results"]["final"]["epoch"] == 3
    metrics = whole.metrics()
    assert metrics["epoch"] == [1, 2, 3]
    assert metrics["step"] == [3, 6, 9]
    assert whole.load_model().training is False


def test_training_learns(recipe, tmp_path):
    run = fit(recipe("trainer.epochs=12"), tmp_path / "run")
    metrics = run.metrics()
    assert metrics["train_loss"][-1] < 0.5 * metrics["train_loss"][0]
    assert run.results["test_accuracy"] > 0.6


def test_best_epoch_is_chosen_on_validation(recipe, tmp_path):
    run = fit(recipe("trainer.epochs=6"), tmp_path / "run")
    metrics = run.metrics()
    order = sorted(zip(metrics["val_accuracy"], [-loss for loss in metrics["val_loss"]], metrics["epoch"], strict=True))
    assert run.results["best"]["epoch"] == order[-1][2]


@pytest.fixture
def all_train(recipe):
    """The recipe with all images for training: none is held out for validation."""
    if "bars" not in DATASETS:
        load = partial(load_data, "folder", **recipe().data.options)
        register_data("bars", load("train"), load("test"), val=load("val").subset([]))
    return lambda *changes: recipe("data.name=bars", "data.options={}", *changes)


def test_without_validation_the_last_epoch_is_kept(all_train, tmp_path, capsys):
    run = fit(all_train("trainer.epochs=2"), tmp_path / "run", progress=True)
    assert run.record["images"]["val"] == 0
    assert not any(name.startswith("val") for name in run.metrics())
    assert run.results["best"] == run.results["final"] == {"epoch": 2, "step": 6}
    lines = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    state = torch.load(run.checkpoints / "epoch-0002-step-00000006.ckpt", weights_only=True)["state_dict"]
    kept = load_file(run.weights)
    assert all(torch.equal(kept[name], state[f"model.{name}"]) for name in kept)
    assert run.diagnostics()["epoch"][-1] == 2


def test_temperature_is_fitted_on_validation_and_stored_with_the_weights(whole):
    found = evaluate(whole.load_model(), whole.load_data("val"))
    assert whole.load_model().temperature == pytest.approx(fit_temperature(found.activations, found.labels))


def test_without_validation_no_temperature_is_fitted(all_train, tmp_path):
    run = fit(all_train("trainer.epochs=1"), tmp_path / "run")
    assert run.load_model().temperature is None


def test_killed_run_without_validation_is_identical(all_train, tmp_path, monkeypatch):
    unbroken = fit(all_train(), tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", 5)
        with pytest.raises(Killed):
            fit(all_train(), tmp_path / "killed")
    run = resume(tmp_path / "killed")
    assert same_rows(run, unbroken)
    assert run.weights.read_bytes() == unbroken.weights.read_bytes()


def test_target_accuracy_needs_validation(all_train, tmp_path):
    with raises_about(ConfigError, "trainer.target_accuracy:", "no images"):
        fit(all_train("trainer.target_accuracy=0.9"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_same_seed_same_weights(recipe, tmp_path, whole):
    again = fit(recipe(*CNN), tmp_path / "again")
    other = fit(recipe(*CNN, "seed=1"), tmp_path / "other")
    assert again.weights.read_bytes() == whole.weights.read_bytes()
    assert other.weights.read_bytes() != whole.weights.read_bytes()
    assert same_rows(again, whole)


def test_random_state_of_caller_is_kept(recipe, tmp_path):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    fit(recipe("trainer.epochs=1"), tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("hook", "step"),
    [("on_train_batch_end", step) for step in range(1, STEPS + 1)]
    + [("on_train_epoch_end", 3), ("on_train_epoch_end", 6), ("on_train_epoch_end", 9)],
)
def test_killed_run_is_identical(recipe, tmp_path, whole, monkeypatch, hook, step):
    with monkeypatch.context() as patch:
        kill_at(patch, hook, step)
        with pytest.raises(Killed):
            fit(recipe(*CNN), tmp_path / "run")
    assert Run.open(tmp_path / "run").status == "failed"
    run = resume(tmp_path / "run")
    assert run.status == "finished"
    assert len(run.record["resumed"]) == 1
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    assert same_rows(run, whole)
    assert run.results == whole.results


def test_killed_again_and_again(recipe, tmp_path, whole, monkeypatch):
    for step in range(1, STEPS + 1):
        with monkeypatch.context() as patch:
            kill_at(patch, "on_train_batch_end", step)
            with pytest.raises(Killed):
                resume(tmp_path / "run") if step > 1 else fit(recipe(*CNN), tmp_path / "run")
    assert resume(tmp_path / "run").weights.read_bytes() == whole.weights.read_bytes()


def test_one_batch_per_epoch(recipe, tmp_path, monkeypatch):
    alone = [*CNN, "data.batch_size=100"]
    whole = fit(recipe(*alone), tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", 2)
        with pytest.raises(Killed):
            fit(recipe(*alone), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["epoch-0001-step-00000001.ckpt"]
    run = resume(tmp_path / "run")
    assert run.weights.read_bytes() == whole.weights.read_bytes()


def test_checkpoint_of_every_epoch_is_kept(whole):
    names = sorted(path.name for path in whole.checkpoints.iterdir())
    assert names == [f"epoch-{epoch:04d}-step-{step:08d}.ckpt" for epoch, step in ((1, 3), (2, 6), (3, 8), (3, 9))]


def test_checkpoint_every_minute(recipe, tmp_path, monkeypatch):
    saved: list[int] = []
    save = RunCallback._save
    monkeypatch.setattr(
        RunCallback, "_save", lambda self, trainer: (saved.append(trainer.global_step), save(self, trainer))
    )
    fit(recipe(*CNN, "trainer.epochs=1", "trainer.checkpoint_every=1000"), tmp_path / "often")
    assert saved == [3]
    monkeypatch.setattr("torchcaps.train._callback.SECONDS", 0.0)
    fit(recipe(*CNN, "trainer.epochs=1", "trainer.checkpoint_every=1000"), tmp_path / "rarely")
    assert saved == [3, 1, 2, 3]


def test_extended_epochs_see_new_batches(recipe, tmp_path, monkeypatch):
    drawn: list[tuple[int, int]] = []
    batch = BatchLoader._batch

    def noted(self, number):
        if self.shuffle:
            drawn.append((self.epoch, number))
        return batch(self, number)

    monkeypatch.setattr(BatchLoader, "_batch", noted)
    fit(recipe(*CNN, "trainer.epochs=1"), tmp_path / "run")
    resume(tmp_path / "run", epochs=2)
    assert drawn == [(epoch, number) for epoch in range(2) for number in range(3)]


KILL = """
import os, signal, sys, torch
from pathlib import Path
from torchcaps.train import parse_recipe, fit
from torchcaps.train._attached import Attached
from torchcaps.train._callback import RunCallback

moment, recipe, run, steps, tests = sys.argv[1:]
sys.path.insert(0, tests)
from step_hashes import recorded

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

def half(obj, file, save=torch.save):
    save(obj, file)
    if "00000005" in os.readlink(f"/proc/self/fd/{file.fileno()}"):
        file.flush()
        os.ftruncate(file.fileno(), 5000)
        die()

if moment == "writing":
    torch.save = half
else:
    after = RunCallback.on_train_batch_end
    RunCallback.on_train_batch_end = lambda self, trainer, *args: (
        die() if trainer.global_step == 5 else after(self, trainer, *args)
    )
RunCallback.on_train_batch_end = recorded(Path(steps), RunCallback.on_train_batch_end)
fit(parse_recipe(Path(recipe).read_text()), run)
"""


def keep_for_comparison(folder: Path) -> str:
    """Copy the runs of a failed comparison to a place that pytest does not clean, and say what differs."""
    kept = Path(tempfile.mkdtemp(prefix="torchcaps-sigkill-"))
    shutil.copytree(folder, kept, dirs_exist_ok=True)
    first, second = (read_steps(kept / f"{name}.jsonl") for name in ("whole", "run"))
    differ = [
        (first.get(step), second.get(step)) for step in sorted(first | second) if first.get(step) != second.get(step)
    ]
    return f"runs kept in {kept}; first steps that differ: {differ[:2]}"


@pytest.mark.skipif(sys.platform != "linux", reason="names the open file by /proc")
@pytest.mark.parametrize("moment", [pytest.param("writing", marks=pytest.mark.slow), "training"])
def test_sigkill(recipe, tmp_path, moment, monkeypatch):
    steps = {name: tmp_path / f"{name}.jsonl" for name in ("whole", "run")}
    (tmp_path / "recipe.toml").write_text(recipe().to_toml())
    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_batch_end", recorded(steps["whole"]))
        whole = fit(recipe(), tmp_path / "whole")
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    strict = ["-W", "error", "-W", "ignore:routing runs without its CPU kernel:UserWarning"]
    files = [tmp_path / "recipe.toml", tmp_path / "run", steps["run"], Path(__file__).parent]
    command = [sys.executable, *strict, "-c", KILL, moment, *files]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stderr == ""
    run = Run.open(tmp_path / "run")
    assert run.status == "running"
    found = sorted(file.name for file in run.checkpoints.iterdir())
    if moment == "writing":
        part = found.pop(0)
        assert part.startswith(".epoch-0002-step-00000005.ckpt.")
    assert found == ["epoch-0001-step-00000002.ckpt", "epoch-0001-step-00000003.ckpt"]
    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_batch_end", recorded(steps["run"]))
        resumed = resume(run.path)
    same = resumed.weights.read_bytes() == whole.weights.read_bytes()
    if not same or read_steps(steps["run"]) != read_steps(steps["whole"]):
        pytest.fail(keep_for_comparison(tmp_path))
    assert not [file for file in run.path.rglob("*") if file.name.endswith(".part")]


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int, times: int = 1) -> None:
    whole = RunCallback.on_train_batch_end

    def interrupted(self, trainer, *args):
        if trainer.global_step == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        whole(self, trainer, *args)

    monkeypatch.setattr(RunCallback, "on_train_batch_end", interrupted)


@pytest.mark.parametrize(("step", "saved"), [(1, 1), (3, 3), (5, 5)])
def test_ctrl_c_saves_and_stops(recipe, tmp_path, whole, monkeypatch, step, saved):
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        interrupt_at(patch, step)
        run = fit(recipe(*CNN), tmp_path / "run")
    assert run.status == "stopped"
    assert max(run.checkpoints.iterdir()).name.endswith(f"step-{saved:08d}.ckpt")
    assert signal.getsignal(signal.SIGINT) is before
    assert resume(tmp_path / "run").weights.read_bytes() == whole.weights.read_bytes()


def test_ctrl_c_with_one_batch_per_epoch(recipe, tmp_path, monkeypatch):
    interrupt_at(monkeypatch, 2)
    run = fit(recipe(*CNN, "data.batch_size=100"), tmp_path / "run")
    assert run.status == "stopped"
    assert max(run.checkpoints.iterdir()).name == "epoch-0002-step-00000002.ckpt"


def test_ctrl_c_in_the_last_epoch_end_finishes(recipe, tmp_path, whole, monkeypatch):
    interrupt_at(monkeypatch, STEPS)
    run = fit(recipe(*CNN), tmp_path / "run")
    assert run.status == "finished"
    assert run.weights.read_bytes() == whole.weights.read_bytes()


def test_second_ctrl_c_stops_at_once(recipe, tmp_path, whole, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3, times=2)
        assert fit(recipe(*CNN), tmp_path / "run").status == "stopped"
    assert max((tmp_path / "run" / "checkpoints").iterdir()).name == "epoch-0001-step-00000002.ckpt"
    assert resume(tmp_path / "run").weights.read_bytes() == whole.weights.read_bytes()


def test_resuming_a_finished_run_changes_nothing(whole):
    before = {file: file.read_bytes() for file in whole.path.rglob("*") if file.is_file()}
    assert resume(whole.path).status == "finished"
    assert before == {file: file.read_bytes() for file in whole.path.rglob("*") if file.is_file()}


def test_damaged_checkpoint_is_skipped(recipe, tmp_path, whole, monkeypatch):
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", 7)
        with pytest.raises(Killed):
            fit(recipe(*CNN), tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="using the one before"):
        run = resume(tmp_path / "run")
    assert run.weights.read_bytes() == whole.weights.read_bytes()


@pytest.mark.slow
def test_two_processes_follow_one(recipe, tmp_path, capfd):
    one, two = (fit(recipe(f"trainer.devices={count}", "trainer.epochs=4"), tmp_path / str(count)) for count in (1, 2))
    # The sums are the same, added in another order: single precision, grown over 12 steps.
    for name in ("train_loss", "val_loss", "lr"):
        assert two.metrics()[name] == pytest.approx(one.metrics()[name], rel=1e-3)
    assert two.metrics()["step"] == one.metrics()["step"]
    assert two.results["test_images"] == 6
    # No advice of DDP, which writes to the file descriptor.
    assert "find_unused_parameters" not in capfd.readouterr().err


def test_several_processes_need_a_main_guard(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with raises_about(ConfigError, "trainer.devices", "if __name__ == '__main__'"):
        fit(recipe("trainer.devices=2"), tmp_path / "run")


def test_precision_of_64_bits(recipe, tmp_path):
    run = fit(recipe("trainer.epochs=1", "trainer.precision=64-true"), tmp_path / "run")
    assert {tensor.dtype for tensor in load_file(run.weights).values()} == {torch.float64}
    assert next(run.load_model().parameters()).dtype == torch.float32


# No training: some machines name instructions for 16 bits that they do not have.
@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_precision_of_16_bits(recipe, tmp_path, precision):
    run = Run.create(recipe(f"trainer.precision={precision}"), tmp_path / "run")
    assert make_trainer(run, RunCallback(run), Attached()).precision == precision


def test_invalid_start_leaves_no_folder(recipe, tmp_path):
    with raises_about(DataError, tmp_path / "none"):
        fit(recipe(f"data.options.path={tmp_path / 'none'}"), tmp_path / "run")
    with raises_about(ConfigError, "'present_'", "'margin'", "'present'"):
        fit(recipe("loss.options.present_=1"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_failed_run_is_recorded(recipe, tmp_path, monkeypatch):
    def fail(*args):
        raise RuntimeError("out of paper")

    monkeypatch.setattr(CapsModule, "training_step", fail)
    with pytest.raises(RuntimeError, match="out of paper"):
        fit(recipe(), tmp_path / "run")
    assert Run.open(tmp_path / "run").status == "failed"


def test_non_finite_loss_ends_run(recipe, tmp_path):
    wild = recipe("optim.lr=1e30", "optim.warmup=0", "trainer.checkpoint_every=1")
    with pytest.raises(TorchcapsError, match=r"^loss: .* got (nan|inf) at step [2-9] .*1e\+30"):
        fit(wild, tmp_path / "run")
    assert Run.open(tmp_path / "run").status == "failed"


@pytest.mark.slow
def test_two_processes_with_unused_weight(recipe, tmp_path):
    words = ["model.name=kmeans_capsnet", "model.options={routing = {name = 'self_routing'}}"]
    run = fit(recipe(*words, "trainer.devices=2", "trainer.epochs=1"), tmp_path / "run")
    assert run.status == "finished"


def test_lines_per_epoch_without_terminal(recipe, tmp_path, capsys):
    fit(recipe("trainer.epochs=2"), tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")
    fit(recipe("trainer.epochs=2"), tmp_path / "shown", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    # A slow machine takes long enough for an estimate of the time.
    lines = [line.split("  ")[0] for line in err.splitlines() if not line.startswith("expected time: ")]
    assert [line.partition(":")[0] for line in lines] == [
        "data", "model", "training", "run folder", "epoch 1/2", "epoch 2/2"
    ]  # fmt: skip
    assert not Path("lightning_logs").exists()


def test_run_is_usable_from_another_folder(recipe, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    run = fit(recipe(f"data.options.path={pictures.name}", "trainer.epochs=1", *CNN), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert len(Run.open(run.path).load_data("test")) == 6


def test_data_are_cropped_to_model_input(recipe, tmp_path):
    run = fit(recipe("data.augment.crop=16", "trainer.epochs=1", *CNN), tmp_path / "run")
    assert run.load_model().image_shape == (1, 16, 16)
    stored, seen = run.load_data("test", stored=True), run.load_data("test")
    assert torch.equal(seen.images, stored.images[..., 2:18, 2:18])


def test_deleted_checkpoints(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.train._loop._spawn", lambda context, attached: 0)
    with raises_about(CheckpointError, "run", tmp_path / "run"):
        fit(recipe(*CNN, "trainer.devices=2"), tmp_path / "run")


@pytest.fixture
def few_digits(monkeypatch):
    from torchcaps.data import load_digits

    monkeypatch.setattr(
        "torchcaps.data._generators.load_digits", lambda split: load_digits(split).subset(range(0, 500, 20))
    )


@pytest.mark.parametrize("name", ["multimnist", pytest.param("digit_pairs", marks=pytest.mark.slow)])
def test_killed_run_on_pairs_is_identical(few_digits, tmp_path, monkeypatch, name):
    small = ["data.options.source=digits", "data.batch_size=4", "data.epoch_size=12", "trainer.epochs=2"]
    more = [f"data.name={name}", "trainer.checkpoint_every=2", "trainer.accelerator=cpu", "data.augment.shift=1"]
    recipe = load_recipe("multimnist", [*small, *more])
    whole = fit(recipe, tmp_path / "whole")
    assert whole.metrics()["step"] == [3, 6]
    assert whole.record["images"] == {"train": 25_000, "val": 25, "test": 25}
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", 5)
        with pytest.raises(Killed):
            fit(recipe, tmp_path / "killed")
    run = resume(tmp_path / "killed")
    assert same_rows(run, whole)
    assert run.weights.read_bytes() == whole.weights.read_bytes()


def test_run_stops_at_target_accuracy(recipe, tmp_path):
    run = fit(recipe("trainer.epochs=12", "trainer.target_accuracy=0.4"), tmp_path / "run")
    accuracies = run.metrics()["val_accuracy"]
    assert len(accuracies) < 12
    assert accuracies[-1] >= 0.4 > max([0, *accuracies[:-1]])
    assert run.results["best"]["epoch"] == len(accuracies)
    assert resume(run.path).results == run.results


def test_run_below_target_accuracy_completes(recipe, tmp_path):
    run = fit(recipe("trainer.epochs=1", "trainer.target_accuracy=1.5"), tmp_path / "run")
    assert run.status == "finished"
    assert len(run.metrics()["epoch"]) == 1


def test_model_without_classes_is_selected_by_loss(recipe, tmp_path):
    run = fit(recipe("model.name=transforming_autoencoder", "model.options={}"), tmp_path / "run")
    metrics = run.metrics()
    assert "val_accuracy" not in metrics
    assert run.results["best"]["val_loss"] == min(metrics["val_loss"])
    assert set(run.results) == {"test_loss", "test_images", "best", "final"}
    assert run.results["test_loss"] > 0


def test_averaged_weights_are_validated_and_kept(recipe, tmp_path, monkeypatch):
    seen: list[dict[str, torch.Tensor]] = []
    whole_step = CapsModule.optimizer_step

    def copied(model: torch.nn.Module) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def watched(self, *args, **options):
        if not seen:
            seen.append(copied(self.model))
        whole_step(self, *args, **options)
        seen.append(copied(self.model))

    monkeypatch.setattr(CapsModule, "optimizer_step", watched)
    run = fit(recipe("optim.ema_decay=0.2", "trainer.epochs=1"), tmp_path / "run")
    mean, *steps = seen
    for number, weights in enumerate(steps, start=1):
        share = max(0.8, 10 / (9 + number))
        mean = {name: old + share * (weights[name] - old) for name, old in mean.items()}
    kept = load_file(run.weights)
    assert len(steps) == 3
    assert not torch.equal(kept["head.weight"], steps[-1]["head.weight"])
    for name, tensor in kept.items():
        torch.testing.assert_close(tensor, mean[name])


@pytest.mark.parametrize("step", [2, 4, 5])
def test_killed_run_with_averaged_weights_is_identical(recipe, tmp_path, monkeypatch, step):
    changes = [*CNN, "optim.ema_decay=0.9"]
    whole = fit(recipe(*changes), tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", step)
        with pytest.raises(Killed):
            fit(recipe(*changes), tmp_path / "run")
    run = resume(tmp_path / "run")
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    assert same_rows(run, whole)


def test_extend_a_finished_run(recipe, tmp_path):
    short = fit(recipe(*CNN, "trainer.epochs=2"), tmp_path / "run")
    assert short.status == "finished"
    longer = resume(tmp_path / "run", epochs=4)
    assert longer.status == "finished"
    metrics = longer.metrics()
    assert metrics["epoch"] == [1, 2, 3, 4]
    # The schedule starts again from where it would have been, and ends at 0.
    assert metrics["lr"][1] == 0 < metrics["lr"][2]
    assert metrics["lr"][3] == 0
    assert longer.results["final"]["epoch"] == 4
    entry = longer.record["extended"][0]
    assert (entry["from"], entry["to"]) == (2, 4)
    assert Run.open(tmp_path / "run").recipe.trainer.epochs == 4


def test_run_is_not_shortened(recipe, tmp_path):
    fit(recipe(*CNN, "trainer.epochs=2"), tmp_path / "run")
    with raises_about(ConfigError, "trainer.epochs:", 2, "got 1"):
        resume(tmp_path / "run", epochs=1)
