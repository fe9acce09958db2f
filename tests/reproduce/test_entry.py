from __future__ import annotations

import pytest
import torch

from torchcaps.data import DATASETS
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.models import create_model
from torchcaps.reproduce import FIGURES, MEASURES, list_reproductions, load_reproduction, plan, run_name
from torchcaps.train import load_recipe
from torchcaps.train.module import make_loss
from torchcaps.types import Capsules

from .entries import write_entry

# Images and classes of what need not be at hand.
SHAPES = {
    "mnist": ((1, 28, 28), 10),
    "multimnist": ((1, 36, 36), 10),
    "translated_mnist": ((1, 40, 40), 10),
    "smallnorb": ((2, 48, 48), 5),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "svhn": ((3, 32, 32), 10),
}


@pytest.mark.parametrize("name", list_reproductions())
def test_every_reproduction_can_be_started(name):
    entry = load_reproduction(name)
    assert entry.name == name
    assert entry.title
    assert entry.source
    assert entry.measure in MEASURES
    assert set(entry.figures) <= set(FIGURES)
    assert len(plan(entry)) == sum(network.seeds for network in entry.networks)
    for _, recipe, folder in plan(entry):
        shape, classes = SHAPES[recipe.data.name]
        shape = recipe.data.augment.output_shape(shape)
        with torch.device("meta"):
            model = create_model(recipe.model.name, shape, classes, **recipe.model.options)
            sizes = model(torch.zeros(2, *shape)).poses.shape  # [B, J, D]
        capsules = Capsules(torch.rand(sizes), torch.rand(sizes[:2]))
        assert make_loss(recipe.loss, model)(capsules, torch.tensor([0, 1])).isfinite()
        assert set(recipe.data.options) <= set(DATASETS[recipe.data.name].options)
        assert folder.startswith(f"{recipe.name}-")


def test_the_numbers_of_the_papers():
    errors = [network.paper["error"] for network in load_reproduction("mnist_table1").networks]
    assert errors == [0.25, 0.35, 0.29, 0.34, 0.39]
    novel = [network.paper["novel error"] for network in load_reproduction("viewpoints").networks]
    assert novel == [13.5, 20.0, 12.3, 17.8]


def test_networks_differ_where_they_should():
    entry = load_reproduction("mnist_table1")
    recipes = {planned.network.label: planned.recipe for planned in plan(entry)}
    one, three = (recipes[f"CapsNet, {count}, reconstruction"] for count in ("1 iteration", "3 iterations"))
    assert [each.model.options["routing"]["iters"] for each in (one, three)] == [1, 3]
    assert recipes["CapsNet, 3 iterations, no reconstruction"].model.options["decoder"] == "none"
    assert len({planned.folder for planned in plan(entry)}) == 5


def test_reproductions_share_the_runs_that_they_have_in_common():
    table, attacks, plane = (
        {planned.folder for planned in plan(load_reproduction(name))}
        for name in ("mnist_table1", "attacks", "vote_plane")
    )
    assert plane < attacks < table


def test_a_folder_is_named_after_the_content_of_a_recipe():
    name = run_name(load_recipe("digits"))
    assert name.startswith("digits-")
    assert name.endswith("-seed0")
    assert run_name(load_recipe("digits", ["seed=4", "description=x"])) == name.replace("seed0", "seed4")
    # A value that is the default anyway is no difference.
    assert run_name(load_recipe("digits", ["optim.decay=0.96"])) == name
    assert run_name(load_recipe("digits", ["optim.lr=0.1"])) != name
    assert run_name(load_recipe("digits", ["data.augment.shift=1"])) != name
    # Nor is how it is computed.
    assert run_name(load_recipe("digits", ["trainer.precision=bf16-mixed", "trainer.accelerator=cpu"])) == name


def test_the_name_does_not_depend_on_where_one_stands(tmp_path, monkeypatch):
    there = run_name(load_recipe("folder", [f"data.options.path={tmp_path / 'mine'}"]))
    monkeypatch.chdir(tmp_path)
    assert run_name(load_recipe("folder", ["data.options.path=mine"])) == there


def test_all_networks_once_before_any_a_second_time(tmp_path):
    runs = plan(load_reproduction(write_entry(tmp_path)), ["seed=5", "trainer.epochs=3"])
    assert [(run.network.label, run.recipe.seed) for run in runs] == [
        ("CNN", 5),
        ("Capsules, 1 iteration", 5),
        ("CNN", 6),
    ]
    assert {run.recipe.trainer.epochs for run in runs} == {3}


def test_all_mistakes_in_one_error(tmp_path):
    wrong = write_entry(tmp_path, measure='"eror"', figures='["overlay"]', label='"Capsules, 1 iteration"')
    with pytest.raises(ConfigError) as caught:
        load_reproduction(wrong)
    text = str(caught.value)
    for line in (
        "measure: unknown measure 'eror'; did you mean 'error'?",
        "figures: unknown figure 'overlay'; did you mean 'overlays'?",
        "networks[1].label: expected a new one, got 'Capsules, 1 iteration' again",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ({"paper": "{ eror = 1 }"}, r"networks\[0\]\.paper: unknown column 'eror'; did you mean 'error'\?"),
        ({"paper": "{ error = 'low' }"}, r"networks\[0\]\.paper\.error: expected a number, got 'low'"),
        ({"seeds": "0"}, r"networks\[0\]\.seeds: expected at least 1, got 0"),
        ({"changes": "[1]"}, r"networks\[0\]\.changes\[0\]: expected a string, got 1"),
        ({"recipe": "7"}, r"networks\[0\]\.recipe: expected a string, got 7"),
    ],
)
def test_mistakes_say_where_they_are(tmp_path, pieces, words):
    with pytest.raises(ConfigError, match=rf"^reproduction '.*tiny\.toml': {words}"):
        load_reproduction(write_entry(tmp_path, **pieces))


def test_no_networks(tmp_path):
    file = tmp_path / "none.toml"
    file.write_text('name = "none"\ntitle = "t"\nsource = "s"\nmeasure = "error"\nnetworks = []\n')
    with pytest.raises(ConfigError, match="networks: expected at least one, got none"):
        load_reproduction(file)


def test_an_unknown_name():
    with pytest.raises(UnknownNameError, match=r"unknown reproduction 'mnist_table'; did you mean 'mnist_table1'\?"):
        load_reproduction("mnist_table")


def test_what_is_wrong_with_the_recipes_is_told_at_once(tmp_path):
    entry = load_reproduction(write_entry(tmp_path, recipe='"digit"'))
    with pytest.raises(ConfigError) as caught:
        plan(entry, ["optim.lrr=1"])
    assert "unknown recipe 'digit'; did you mean 'digits'?" in str(caught.value)
    assert "unknown key 'optim.lrr'; did you mean 'lr'?" in str(caught.value)
