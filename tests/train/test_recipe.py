from __future__ import annotations

from dataclasses import replace

import pytest

from fresh import run_fresh
from model_shapes import fit_shape
from raising import raises_about
from torchcaps.data import DATASETS, Augment
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.models import create_model
from torchcaps.nn import ROUTERS
from torchcaps.train import DEFAULT_RECIPE, list_recipes, load_recipe, parse_recipe


@pytest.mark.parametrize("name", list_recipes())
def test_recipe_round_trip(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description
    assert parse_recipe(recipe.to_toml()) == recipe


@pytest.mark.parametrize("name", list_recipes())
def test_recipes_name_existing_models_and_data(name):
    recipe = load_recipe(name)
    create_model(recipe.model.name, fit_shape(recipe.model.name, (1, 28, 28)), 10, **recipe.model.options)
    options = DATASETS[recipe.data.name].options
    assert set(recipe.data.options) <= set(options)


def test_default_recipe_is_digits():
    assert load_recipe(overrides=["seed=3"]).name == DEFAULT_RECIPE == "digits"


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_settings_of_paper(name):
    recipe = load_recipe(name)
    assert (recipe.model.name, recipe.data.batch_size, recipe.data.augment) == ("capsnet", 128, Augment(shift=2))
    assert (recipe.optim.name, recipe.optim.lr) == ("adam", 0.001)
    assert (recipe.optim.schedule, recipe.optim.decay, recipe.optim.decay_every) == ("exponential", 0.96, 2000)
    assert (recipe.loss.reconstruction, recipe.loss.scale) == (0.0005, "paper")


def test_file_with_overrides(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[model]\nname = "cnn_small"\n[data]\nname = "digits"\n')
    recipe = load_recipe(file, ["data.augment.shift=1", "trainer.precision=bf16-mixed", "model.options.dropout=0"])
    assert recipe.data.augment.shift == 1
    assert recipe.trainer.precision == "bf16-mixed"
    assert recipe.model.options == {"dropout": 0}
    assert recipe.loss.name is None


@pytest.mark.parametrize("router", ROUTERS.names())
def test_router_override(router):
    recipe = load_recipe("digits", [f"model.options.routing.name={router}"])
    expected = {"name": "dynamic", "iters": 3} if router == "dynamic" else {"name": router}
    assert recipe.model.options["routing"] == expected
    create_model(recipe.model.name, (1, 28, 28), 10, **recipe.model.options)


def test_options_stay_with_new_name():
    recipe = load_recipe("digits", ["model.options.routing.iters=5", "model.options.routing.name=kuramoto"])
    assert recipe.model.options["routing"] == {"name": "kuramoto", "iters": 5}


def test_all_errors_at_once():
    wrong = ["optim.lrr=1", "seed=x", "trainer.precision=8", "model.name=capsnett", "data.augment.shift=-1", "typo"]
    with pytest.raises(ConfigError) as caught:
        load_recipe("digits", wrong)
    text = str(caught.value)
    assert text.startswith("recipe 'digits': \n")
    for start, value in (
        ("override:", "'typo'"),
        ("model.name:", "'capsnett'"),
        ("unknown key", "'optim.lrr'"),
        ("seed:", "'x'"),
        ("trainer.precision:", "8"),
        ("data.augment.shift:", "-1"),
    ):
        assert any(line.strip().startswith(start) and value in line for line in text.splitlines())


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("data.name=digit", ("data.name:", "'digit'", "'digits'")),
        ("loss.name=margins", ("loss.name:", "'margins'", "'margin'")),
        ("optim.ema_decay=1", ("optim.ema_decay:", "1.0")),
        ("trainer.devices=3", ("data.batch_size:", "trainer.devices", 3, 64)),
    ],
)
def test_one_error_is_one_line(override, names):
    with raises_about(ConfigError, "recipe 'digits':", *names):
        load_recipe("digits", [override])


def test_unknown_recipe():
    with raises_about(UnknownNameError, "recipe", "'digit'", "'digits'"):
        load_recipe("digit")


def test_missing_file(tmp_path):
    with raises_about(ConfigError, "recipe:", tmp_path / "none.toml"):
        load_recipe(tmp_path / "none.toml")


def test_not_toml():
    with raises_about(ConfigError, "here:", "TOML"):
        parse_recipe("name = ", "here")


def test_reading_a_recipe_does_not_import_lightning():
    code = "import sys, torchcaps.train as t; t.load_recipe(); t.Run; sys.exit('lightning' in sys.modules)"
    assert run_fresh(code).returncode == 0


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".", "", "a\\b", "x\n", "-x", "a" * 200])
def test_name_is_a_plain_file_name(name):
    with raises_about(ConfigError, "name", repr(name)):
        replace(load_recipe("digits"), name=name)


@pytest.mark.parametrize(
    ("change", "full"),
    [
        ("epoch=5", "trainer.epochs"),
        ("optim.epochs=5", "trainer.epochs"),
        ("trainer.epoch=5", "trainer.epochs"),
        ("batchsize=5", "data.batch_size"),
        ("iter=5", "model.options.routing.iters"),
        ("options=5", "model.options"),
    ],
)
def test_unknown_key_names_the_full_one(change: str, full: str) -> None:
    with raises_about(ConfigError, change.partition("=")[0], full):
        load_recipe("digits", [change])


def test_option_of_the_router_has_a_short_key() -> None:
    assert load_recipe("digits", ["iters=1"]).model.options["routing"]["iters"] == 1
    # Self-attention has no iterations.
    with raises_about(ConfigError, "iters"):
        load_recipe("digits", ["model.options.routing=self_attention", "iters=1"])
