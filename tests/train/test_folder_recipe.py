from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from raising import raises_about
from torchcaps.data import load_data
from torchcaps.data.folder_files import scan_folder
from torchcaps.errors import ConfigError, DataError
from torchcaps.train import choose_recipe, find_lr, fit, load_recipe, parse_recipe
from torchcaps.train.folder_recipe import PATIENT, dump_value, folder_path, model_choices, patience_choices
from torchcaps.train.recipe import full_keys, plain_name


def fill(folder: Path, count: int, size: tuple[int, int] = (20, 20), colour: bool = True) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(count)
    for number in range(count):
        pixels = rng.integers(0, 255, (*size, 3) if colour else size, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    fill(tmp_path / "my photos" / "cat", 30)
    fill(tmp_path / "my photos" / "dog", 12)
    return tmp_path / "my photos"


def test_a_recipe_that_trains(photos: Path, tmp_path: Path) -> None:
    chosen = choose_recipe(photos, ["epochs=1", "accelerator=cpu"])
    recipe = chosen.recipe
    assert (recipe.name, recipe.model.name, recipe.trainer.epochs) == ("my photos", "backbone_capsnet", 1)
    assert recipe.data.options["image_size"] == [20, 20]
    assert recipe.data.options["channels"] == 3
    assert recipe.loss.options["weight"] == "balanced"
    assert recipe.data.augment.flip
    assert "42" in chosen.found["images"]
    run = fit(recipe, tmp_path / "run")
    # The choice is stored as a plain recipe.
    assert parse_recipe((run.path / "recipe.toml").read_text()) == run.recipe
    assert run.results["test_images"] == 4


def test_few_validation_images_do_not_end_a_run() -> None:
    assert patience_choices(60, PATIENT - 1) == []
    assert [choice.value for choice in patience_choices(60, PATIENT)] == [20]


def test_each_choice_can_be_overridden(photos: Path) -> None:
    plain = choose_recipe(photos)
    for choice in plain.choices:
        if isinstance(choice.value, bool | str) or choice.key in ("data.options.channels", "loss.reconstruction"):
            continue
        value = [24, 24] if isinstance(choice.value, list) else type(choice.value)(choice.value * 0.5 or 1)
        again = choose_recipe(photos, [f"{choice.key}={dump_value(value)}"])
        assert choice.key not in [other.key for other in again.choices]
        found = again.recipe
        for part in choice.key.split("."):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        assert found == value


def test_another_model_gets_no_options_of_the_chosen_one(photos: Path) -> None:
    chosen = choose_recipe(photos, ["model.name=cnn_small", "model.options={}"])
    assert chosen.recipe.model.options == {}
    assert not any(choice.key.startswith("model.") for choice in chosen.choices)


def test_grey_and_balanced_images(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name, 12, colour=False)
    recipe = choose_recipe(tmp_path).recipe
    assert not recipe.data.augment.flip
    assert recipe.data.augment.hue == recipe.data.augment.saturation == 0
    assert "weight" not in recipe.loss.options
    assert recipe.data.options["channels"] == 1


def test_images_without_an_upper_side_are_turned(tmp_path: Path) -> None:
    fill(tmp_path / "noise" / "one", 150)
    fill(tmp_path / "noise" / "two", 151)
    chosen = {choice.key: choice.value for choice in choose_recipe(tmp_path / "noise").choices}
    assert chosen["data.augment.flip"] is True
    assert chosen["data.augment.turn"] is True


def test_images_with_an_upper_side_are_neither_turned_nor_mirrored(tmp_path: Path) -> None:
    batch = load_data("digits").batch(torch.arange(400))
    for number, (image, label) in enumerate(zip(batch.images, batch.labels, strict=True)):
        file = tmp_path / "digits" / str(int(label) % 2) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(file)
    chosen = {choice.key: choice.value for choice in choose_recipe(tmp_path / "digits").choices}
    assert chosen["data.augment.flip"] is False
    assert "data.augment.turn" not in chosen


@pytest.mark.parametrize(
    ("images", "side", "backbone"),
    [(1_999, 64, "resnet8"), (2_000, 64, "vgg7"), (4_999, 224, "resnet8"), (5_000, 224, "resnet10")],
)
def test_backbones_follow_number_and_size(images: int, side: int, backbone: str) -> None:
    assert {choice.key: choice.value for choice in model_choices(images, side)}["model.options.backbone"] == backbone


def test_mixed_sizes_are_announced(tmp_path: Path) -> None:
    for k, name in enumerate(("a", "b")):
        for number in range(5):
            fill(tmp_path / name / str(number), 1, size=(60 + 5 * k, 70 + 6 * number))
    chosen = choose_recipe(tmp_path)
    size = next(choice for choice in chosen.choices if choice.key == "data.options.image_size")
    assert "square" in size.why
    assert size.value[0] == size.value[1]
    assert load_data("folder", **chosen.recipe.data.options).image_shape[1:] == tuple(size.value)


@pytest.mark.parametrize(
    ("images", "batch", "steps"),
    [(40, 8, 100), (472, 16, 1500), (1999, 64, 2000), (2000, 64, 2400), (5000, 64, 3000), (60000, 64, 10000)],
)
def test_steps_follow_from_the_number_of_images(images: int, batch: int, steps: int) -> None:
    from torchcaps.train.folder_recipe import MAX_EPOCHS, MIN_EPOCHS, batch_size_for, epochs_for

    assert batch_size_for(images) == batch
    epochs = epochs_for(images, images // batch)
    assert MIN_EPOCHS <= epochs <= MAX_EPOCHS
    assert epochs * (images // batch) >= steps


def test_images_that_stay_on_disk_get_workers(photos: Path) -> None:
    assert choose_recipe(photos).recipe.data.workers == 0
    assert choose_recipe(photos, ["memory_mb=0"]).recipe.data.workers >= 1


def test_bad_files(photos: Path) -> None:
    (photos / "cat" / "broken.png").write_bytes(b"nothing")
    (photos / "cat" / "notes.txt").write_text("a cat")
    with raises_about(DataError, "broken.png"):
        choose_recipe(photos)
    with pytest.warns(UserWarning, match="broken.png"):
        chosen = choose_recipe(photos, ["skip_bad=true"])
    assert "1 bad file left out" in chosen.found["images"]
    assert "1 file of other formats" in chosen.found["images"]
    assert chosen.recipe.data.options["skip_bad"] is True


def test_wrong_keys_are_found_before_the_images_are_read(tmp_path: Path) -> None:
    with raises_about(ConfigError, "unknown key 'trainer.epoch'"):
        choose_recipe(tmp_path / "nowhere", ["trainer.epoch=3"])


def test_full_keys() -> None:
    table = {"model": {"name": "backbone_capsnet"}, "data": {"name": "folder"}}
    short = ["epochs=5", "lr=0.1", "flip=true", "backbone=resnet14", "seed=3", "scale=0.2", "nonsense=1", "path=a=b"]
    assert full_keys(table, short) == [
        "trainer.epochs=5",
        "optim.lr=0.1",
        "data.augment.flip=true",
        "model.options.backbone=resnet14",
        "seed=3",
        "scale=0.2",
        "nonsense=1",
        "data.options.path=a=b",
    ]
    assert load_recipe("digits", ["epochs=3"]).trainer.epochs == 3


def test_path_of_the_folder() -> None:
    assert folder_path(["epochs=3", "path=my images"]) == "my images"
    with raises_about(ConfigError, "data.options.path", "not set"):
        folder_path(["epochs=3"])


@pytest.mark.parametrize("text", ["", "..", "a/b", "\x1b[0m", "x" * 300, "鍵", ".hidden", "-"])
def test_plain_names_are_names_of_recipes(text: str) -> None:
    assert load_recipe("digits", [f"name={dump_value(plain_name(text))}"]).name


def test_find_lr(recipe) -> None:
    before = torch.get_rng_state()
    found = find_lr(recipe("model.name=cnn_small", "model.options={}"), steps=30)
    assert 1e-6 < found.lr < 1
    assert found.rates == sorted(found.rates)
    assert len(found.losses) == len(found.rates) <= 30
    assert torch.equal(torch.get_rng_state(), before)


def test_find_lr_needs_steps(recipe) -> None:
    with raises_about(ConfigError, "steps", "got 12"):
        find_lr(recipe(), steps=12)


def test_another_recipe_gets_enough_steps_for_few_images(photos: Path) -> None:
    chosen = choose_recipe(photos, base="mnist")
    plain = load_recipe("mnist")
    train = sum(len(files) for files in scan_folder(photos, {"val": 0.1, "test": 0.1}).splits["train"].values())
    recipe = chosen.recipe
    assert recipe.model == plain.model
    assert recipe.data.augment == plain.data.augment
    assert recipe.data.name == "folder"
    assert recipe.data.batch_size < plain.data.batch_size
    steps = train // recipe.data.batch_size * recipe.trainer.epochs
    assert steps > 3 * plain.trainer.epochs * -(-train // plain.data.batch_size)
    assert 0 < recipe.optim.warmup <= 0.06 * steps
    kept = choose_recipe(photos, ["epochs=2", "data.batch_size=4"], base="mnist").recipe
    assert (kept.trainer.epochs, kept.data.batch_size) == (2, 4)
