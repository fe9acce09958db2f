from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import DATASETS
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.experiments import METRICS, list_reproductions, load_reproduction, plan_runs, run_name
from torchcaps.models import create_model
from torchcaps.report.registry import FIGURES
from torchcaps.train import load_recipe
from torchcaps.train.module import make_loss
from torchcaps.types import Capsules

from .entries import write_entry

# Images and classes of data that need not be available.
SHAPES = {
    "mnist": ((1, 28, 28), 10),
    "multimnist": ((1, 36, 36), 10),
    "translated_mnist": ((1, 40, 40), 10),
    "smallnorb": ((2, 48, 48), 5),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "svhn": ((3, 32, 32), 10),
    "fashion_mnist": ((1, 28, 28), 10),
    "faces": ((1, 28, 28), 4),
    "crowded_digits": ((1, 28, 28), 10),
    "overlapping_shapes": ((1, 28, 28), 4),
    "coil20": ((1, 32, 32), 20),
    "eth80": ((3, 32, 32), 8),
}


@pytest.mark.parametrize("name", list_reproductions())
def test_every_reproduction(name):
    entry = load_reproduction(name)
    assert entry.name == name
    assert entry.title
    assert entry.source
    assert entry.metric in METRICS
    assert set(entry.figures) <= set(FIGURES)
    assert len(plan_runs(entry)) == sum(network.seeds for network in entry.networks)
    for planned in plan_runs(entry):
        recipe, folder = planned.recipe, planned.folder
        shape, classes = SHAPES[recipe.data.name]
        if recipe.data.options.get("halved"):
            shape = (1, 28, 28)
        shape = recipe.data.augment.output_shape(shape)
        with torch.device("meta"):
            model = create_model(recipe.model.name, shape, classes, **recipe.model.options)
            sizes = model(torch.zeros(2, *shape)).poses.shape  # [B, J, D]
        capsules = Capsules(torch.rand(sizes), torch.rand(sizes[:2]))
        assert make_loss(recipe.loss, model)(capsules, torch.tensor([0, 1])).isfinite()
        assert set(recipe.data.options) <= set(DATASETS[recipe.data.name].options)
        assert folder.startswith(f"{recipe.name}-")


def test_numbers_of_the_papers():
    errors = [network.paper["error"] for network in load_reproduction("mnist_table1").networks]
    assert errors == [0.25, 0.35, 0.29, 0.34, 0.39]
    novel = [network.paper["novel error"] for network in load_reproduction("viewpoints").networks]
    assert novel == [13.5, 20.0, 12.3, 17.8]


def test_networks_differ():
    entry = load_reproduction("mnist_table1")
    recipes = {planned.label: planned.recipe for planned in plan_runs(entry)}
    one, three = (recipes[f"CapsNet, {count}, reconstruction"] for count in ("1 iteration", "3 iterations"))
    assert [each.model.options["routing"]["iters"] for each in (one, three)] == [1, 3]
    assert recipes["CapsNet, 3 iterations, no reconstruction"].model.options["decoder"] == "none"
    assert len({planned.folder for planned in plan_runs(entry)}) == 5


def test_shared_runs():
    table, attacks, plane = (
        {planned.folder for planned in plan_runs(load_reproduction(name))}
        for name in ("mnist_table1", "attacks", "vote_plane")
    )
    assert plane < attacks < table


def test_run_name():
    name = run_name(load_recipe("digits"))
    assert name.startswith("digits-")
    assert name.endswith("-seed0")
    assert run_name(load_recipe("digits", ["seed=4", "description=x"])) == name.replace("seed0", "seed4")
    # Default values do not matter.
    assert run_name(load_recipe("digits", ["optim.decay=0.96"])) == name
    assert run_name(load_recipe("digits", ["optim.lr=0.1"])) != name
    assert run_name(load_recipe("digits", ["data.augment.shift=1"])) != name
    # Precision and accelerator do not matter.
    assert run_name(load_recipe("digits", ["trainer.precision=bf16-mixed", "trainer.accelerator=cpu"])) == name


def test_run_name_of_relative_paths(tmp_path, monkeypatch):
    there = run_name(load_recipe("folder", [f"data.options.path={tmp_path / 'mine'}"]))
    monkeypatch.chdir(tmp_path)
    assert run_name(load_recipe("folder", ["data.options.path=mine"])) == there


def test_order_of_runs(tmp_path):
    runs = plan_runs(load_reproduction(write_entry(tmp_path)), ["seed=5", "trainer.epochs=3"])
    assert [(run.label, run.recipe.seed) for run in runs] == [
        ("CNN", 5),
        ("Capsules, 1 iteration", 5),
        ("CNN", 6),
    ]
    assert {run.recipe.trainer.epochs for run in runs} == {3}


def test_all_errors_together(tmp_path):
    wrong = write_entry(tmp_path, metric='"eror"', figures='["curve"]', label='"Capsules, 1 iteration"')
    with pytest.raises(ConfigError) as caught:
        load_reproduction(wrong)
    text = str(caught.value)
    for line in (
        "metric: unknown metric 'eror'; did you mean 'error'?",
        "figures: unknown figure 'curve'; did you mean 'curves'?",
        "networks[1].label: expected a unique label, got 'Capsules, 1 iteration' again",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("pieces", "names"),
    [
        ({"paper": "{ eror = 1 }"}, ("networks[0].paper", "'eror'", "'error'")),
        ({"paper": "{ error = 'low' }"}, ("networks[0].paper.error", "'low'")),
        ({"seeds": "0"}, ("networks[0].seeds", "got 0")),
        ({"changes": "[1]"}, ("networks[0].changes[0]", "got 1")),
        ({"recipe": "7"}, ("networks[0].recipe", "got 7")),
    ],
)
def test_errors_name_the_key(tmp_path, pieces, names):
    with raises_about(ConfigError, "tiny.toml", *names):
        load_reproduction(write_entry(tmp_path, **pieces))


def test_no_networks(tmp_path):
    file = tmp_path / "none.toml"
    file.write_text('name = "none"\ntitle = "t"\nsource = "s"\nmetric = "error"\nnetworks = []\n')
    with raises_about(ConfigError, "networks", "none"):
        load_reproduction(file)


def test_unknown_name():
    with raises_about(UnknownNameError, "'mnist_table'", "'mnist_table1'"):
        load_reproduction("mnist_table")


def test_errors_of_recipes_together(tmp_path):
    entry = load_reproduction(write_entry(tmp_path, recipe='"digit"'))
    with pytest.raises(ConfigError) as caught:
        plan_runs(entry, ["optim.lrr=1"])
    assert "unknown recipe 'digit'; did you mean 'digits'?" in str(caught.value)
    assert "unknown key 'optim.lrr'; did you mean 'optim.lr'?" in str(caught.value)
