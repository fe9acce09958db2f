from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fresh import run_fresh
from raising import raises_about
from shipping import ship
from torchcaps import train
from torchcaps.data import InMemoryDataset, load_data
from torchcaps.data.dataset import Batch
from torchcaps.data.generated import GeneratedDataset
from torchcaps.errors import ConfigError
from torchcaps.models import create_model, pretrained
from torchcaps.models._weights import save_weights
from torchcaps.playground import PlaygroundNetwork, open_network
from torchcaps.playground import network as module
from torchcaps.playground.images import SampleSource
from torchcaps.playground.network import interleave_classes
from torchcaps.playground.routing import TraceRequest, trace
from torchcaps.train import Recipe, Run, load_recipe

# Seconds instead of minutes: an epoch on a handful of digits.
QUICK = ("trainer.epochs=1", "data.batch_size=500", "optim.warmup=0", "trainer.accelerator=cpu")


def test_interleave_classes() -> None:
    data = interleave_classes(load_data("digits", "test"), 45)
    assert data.labels.tolist() == list(range(10)) * 4


def test_interleave_without_a_class() -> None:
    images = torch.zeros(5, 1, 4, 4, dtype=torch.uint8)
    data = InMemoryDataset("few", "test", images, torch.tensor([2, 0, 0, 2, 2]), ("a", "b", "c"), "here")
    assert interleave_classes(data).labels.tolist() == [0, 2, 0, 2]


def test_interleave_by_first_label() -> None:
    def draw(numbers: torch.Tensor) -> Batch:
        images = torch.zeros(len(numbers), 1, 4, 4, dtype=torch.uint8)
        return Batch(images, torch.stack([numbers % 2, numbers % 3], dim=1), None, {})

    drawn = interleave_classes(GeneratedDataset("pairs", "test", ("a", "b", "c"), "here", 9, draw), 6)
    assert drawn.labels.tolist() == [0, 1] * 3
    assert drawn.images.shape == (6, 1, 4, 4)


@pytest.mark.parametrize(("level", "channels", "ink"), [(0, 1, True), (200, 1, False), (0, 3, False)])
def test_has_ink(level: int, channels: int, ink: bool) -> None:
    images = torch.full((4, channels, 28, 28), level, dtype=torch.uint8)
    images[:, :, 10:14, 10:14] = 255
    data = InMemoryDataset("some", "test", images, torch.zeros(4, dtype=torch.int64), ("a",), "here")
    assert PlaygroundNetwork("n", "", create_model("cnn_small", (channels, 28, 28), 1), data).has_ink is ink


def test_overlay_is_shifted_and_clamped(network: PlaygroundNetwork) -> None:
    both = network.image(SampleSource(sample=0, second=0))
    assert 0 <= float(both.min()) <= float(both.max()) <= 1
    first = network.image(SampleSource(sample=0))
    assert not torch.equal(both, first)


def test_unknown_sample(network: PlaygroundNetwork) -> None:
    with raises_about(ConfigError, "sample:", 199, 200):
        network.image(SampleSource(sample=200))


def test_warm_up_runs_both_networks(network: PlaygroundNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    assert network.cnn is not None
    calls: list[torch.Size] = []
    hooks = [
        model.register_forward_hook(lambda *args: calls.append(args[1][0].shape))
        for model in (network.model, network.cnn)
    ]
    network.warm_up()
    for hook in hooks:
        hook.remove()
    assert len({shape[0] for shape in calls} - {1}) == 1
    assert network.pose_size == 16


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the one with the weights inside the package."""
    folder = tmp_path / "pretrained"
    folder.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    return folder


# What a finished training records.
FINISHED: dict[str, Any] = {
    "status": "finished",
    "image_shape": [1, 28, 28],
    "num_classes": 10,
    "num_labels": 1,
    "class_names": list("0123456789"),
    "parameters": 1,
    "seconds": 1.0,
    "results": {"test_accuracy": 0.125, "best": {}, "final": {}},
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shipped: Path) -> Path:
    """A cache of its own, where training ends at once, with the weights that it began with."""
    monkeypatch.setattr(module, "user_cache_path", lambda name: tmp_path / name)

    def begin(recipe: Recipe, folder: Path, *, progress: bool) -> Run:
        run = Run.create(recipe, folder)
        save_weights(create_model(recipe.model.name, **recipe.model.options).state_dict(), run.weights)
        run.update_record(**FINISHED)
        return run

    monkeypatch.setattr(train, "fit", begin)
    return tmp_path


def test_networks_are_trained_once_and_cached(cache: Path) -> None:
    lines: list[str] = []
    played = open_network(say=lines.append)
    assert played.name == "capsnet_small"
    assert played.about == "capsnet_small on digits, test accuracy 12.5%"
    assert [line.split()[:2] for line in lines] == [["training", "capsnet_small"], ["training", "cnn_small"]]
    again: list[str] = []
    kept = open_network(say=again.append)
    assert again == []
    assert all(torch.equal(a, b) for a, b in zip(played.model.parameters(), kept.model.parameters(), strict=True))
    # A run of the digits has the same network beside it.
    folder = next((cache / "torchcaps" / "playground").glob("capsnet_small-*"))
    own = open_network(folder, say=again.append)
    assert (own.name, again) == (folder.name, [])
    assert own.cnn is not None


def test_stopped_training_is_resumed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    statuses = iter(["stopped", "finished"])
    folders: list[Path] = []

    def begin(recipe: Recipe, folder: Path, *, progress: bool) -> Any:
        run = Run.create(recipe, folder)
        run.update_record(**{**FINISHED, "status": next(statuses)})
        folders.append(folder)
        return run

    def go_on(folder: Path, *, progress: bool) -> Any:
        run = Run.open(folder)
        run.update_record(status=next(statuses))
        return run

    monkeypatch.setattr(train, "fit", begin)
    monkeypatch.setattr(train, "resume", go_on)
    recipe = load_recipe("digits", QUICK)
    with pytest.raises(KeyboardInterrupt):
        module._cached_run(recipe, False, lines.append)
    run = module._cached_run(recipe, False, lines.append)
    assert (run.status, run.path) == ("finished", folders[0])
    assert [line.split()[0] for line in lines] == ["training", "resuming"]


def test_folder_without_record_is_replaced(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    def begin(recipe: Recipe, folder: Path, *, progress: bool) -> Any:
        made.append(folder.exists())
        run = Run.create(recipe, folder)
        run.update_record(**FINISHED)
        return run

    monkeypatch.setattr(train, "fit", begin)
    recipe = load_recipe("digits", QUICK)
    folder = module._cached_run(recipe, False, print).path
    (folder / "run.json").unlink()
    module._cached_run(recipe, False, print)
    assert made == [False, False]


def test_run_on_other_images_has_no_cnn(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    for number, name in enumerate(("dark", "light")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for place in range(12):
            Image.fromarray(np.full((20, 20), 60 + 120 * number, np.uint8)).save(
                tmp_path / f"pictures/{name}/{place}.png"
            )
    recipe = load_recipe("folder", [f"data.options.path={tmp_path / 'pictures'}", *QUICK, "data.batch_size=8"])
    run = train.fit(recipe, tmp_path / "run")
    played = open_network(run.path)
    assert played.cnn is None
    assert (played.class_names, played.has_ink) == (("dark", "light"), False)


def test_default_network_needs_weights_and_a_decoder(shipped: Path) -> None:
    assert not module.has_default()
    ship(shipped, "fashion_mnist")
    assert not module.has_default()
    ship(shipped, module.PRETRAINED, model="cnn_small", options={})
    assert not module.has_default()


def test_pair_network_gets_single_digits() -> None:
    pairs = module.pretrained_network("multimnist")
    assert (pairs.labels, pairs.model.image_shape) == (2, (1, 36, 36))
    assert pairs.samples.images.shape[-2:] == (28, 28)
    alone = pairs.image(SampleSource(sample=3))
    assert alone.shape == (1, 1, 36, 36)
    assert float(alone[..., :4, :].sum()) == 0


def test_run_and_pretrained_weights() -> None:
    with raises_about(ConfigError, "run:", "runs/mine", "mnist"):
        open_network("runs/mine", pretrained="mnist")


@pytest.mark.parametrize("model", ["capsnet_small", "efficient_capsnet"])
def test_pretrained_network_with_cnn(cache: Path, shipped: Path, model: str) -> None:
    own = ship(shipped, module.PRETRAINED, model=model, options={})
    lines: list[str] = []
    played = open_network(say=lines.append)
    assert (played.name, played.about) == (module.PRETRAINED, f"{model} on mnist, test accuracy 99.12%")
    assert [line.split()[:2] for line in lines] == [["training", "cnn_small"]]
    assert played.cnn is not None
    assert not played.model.training
    assert all(torch.equal(a, b) for a, b in zip(played.model.parameters(), own.parameters(), strict=True))
    assert played.samples.labels[:10].tolist() == list(range(10))
    played.warm_up()
    traced = trace(TraceRequest(source=SampleSource(sample=3), routers=["own", "dynamic"]), played)
    assert len(traced.traces[0].activations[0]) == 10


def test_pretrained_weights_need_no_training(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(shipped, module.PRETRAINED)
    own = ship(shipped, "mnist_cnn", model="cnn_small", options={})
    monkeypatch.setattr(train, "fit", None, raising=False)
    lines: list[str] = []
    cnn = open_network(say=lines.append).cnn
    assert lines == []
    assert cnn is not None
    assert all(torch.equal(a, b) for a, b in zip(cnn.parameters(), own.parameters(), strict=True))


def test_import_does_not_load_lightning() -> None:
    code = "import sys, torchcaps.playground; print('lightning' in sys.modules)"
    assert run_fresh(code).stdout == "False\n"
