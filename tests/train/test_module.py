from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import BatchLoader, load_data, to_float
from torchcaps.errors import ConfigError
from torchcaps.nn import MarginLoss
from torchcaps.train import load_recipe
from torchcaps.train.module import CapsModule, Mean, make_loss, make_model, make_optimizer
from torchcaps.train.recipe import LossRecipe, OptimRecipe


@pytest.fixture(scope="module")
def batch():
    data = load_data("digits", "val").subset(range(0, 500, 60))
    return to_float(data.images), data.labels


def module(*overrides: str) -> CapsModule:
    torch.manual_seed(0)
    recipe = load_recipe("digits", overrides)
    return CapsModule(make_model(recipe, load_data("digits", "val")), recipe, total_steps=10)


def test_loss_is_margin_plus_reconstruction(batch):
    images, labels = batch
    made = module("loss.reconstruction=0.02")
    capsules = made.model(images)
    errors = (made.model.decode(capsules, labels) - images).square().sum() / len(images)
    expected = MarginLoss()(capsules, labels) + 0.02 * errors
    torch.testing.assert_close(made.training_step(batch, 0), expected)
    # The fresh network is mostly wrong: masked by its prediction the reconstruction would be another.
    assert not torch.equal(made.model.decode(capsules, labels), made.model.decode(capsules))


def test_released_scale_is_twenty_times_larger(batch):
    bare = module("loss.reconstruction=0").training_step(batch, 0)
    paper, released = (module(f"loss.scale={scale}").training_step(batch, 0) - bare for scale in ("paper", "released"))
    torch.testing.assert_close(released, 20 * paper, rtol=1e-4, atol=0)


def test_unused_decoder_is_frozen():
    frozen = module("loss.reconstruction=0").model.named_parameters()
    assert {name.split(".")[0] for name, weight in frozen if not weight.requires_grad} == {"decoder"}
    assert all(weight.requires_grad for weight in module().model.parameters())


def test_totals_count_images(batch):
    made = module()
    made.validation_step(batch, 0)
    made.validation_step((batch[0][:0], batch[1][:0]), 1)
    assert made.metrics["val_loss"].count == made.metrics["val_accuracy"].count == len(batch[1])
    assert made.metrics["train_loss"].count == 0


def test_loss_by_name_with_options():
    model = module().model
    assert make_loss(LossRecipe(), model).present == 0.9
    assert make_loss(LossRecipe(name="margin", options={"present": 0.8}), model).present == 0.8


def test_unknown_loss_option():
    with raises_about(ConfigError, "'absnt'", "'margin'", "'absent'"):
        make_loss(LossRecipe(options={"absnt": 1}), module().model)


def test_model_gets_cropped_shape():
    recipe = load_recipe("digits", ["data.augment.crop=24"])
    assert make_model(recipe, load_data("digits", "val")).image_shape == (1, 24, 24)


@pytest.mark.parametrize(("name", "cls"), [("adam", "Adam"), ("adamw", "AdamW"), ("sgd", "SGD")])
def test_optimizer_from_recipe(name, cls):
    made = module(f"optim.name={name}", "optim.lr=0.5", "optim.weight_decay=0.25", "optim.warmup=1")
    configured = made.configure_optimizers()
    group = configured["optimizer"].param_groups[0]
    assert type(configured["optimizer"]).__name__ == cls
    assert (group["initial_lr"], group["lr"], group["weight_decay"]) == (0.5, 0.25, 0.25)


def test_two_digits_are_reconstructed_separately():
    data = load_data("multimnist", "val", source="digits")
    images, labels, sources = batch = next(iter(BatchLoader(data, 6)))
    torch.manual_seed(0)
    recipe = load_recipe("multimnist", ["data.options.source=digits", "loss.reconstruction=0.02"])
    made = CapsModule(make_model(recipe, data), recipe, total_steps=10)
    capsules = made.model(images)
    expected = MarginLoss()(capsules, torch.zeros(6, 10).scatter(1, labels, 1.0))
    for k in range(2):
        errors = made.model.decode(capsules, labels[:, k]) - sources[:, k]
        expected = expected + 0.02 * errors.square().sum() / 6
    torch.testing.assert_close(made.training_step(batch, 0), expected)
    both = [set(predicted) == set(true) for predicted, true in zip(
        capsules.activations.topk(2).indices.tolist(), labels.tolist(), strict=True
    )]  # fmt: skip
    accuracy = made.metrics["train_accuracy"]
    assert (accuracy.total, accuracy.count) == (sum(both), 6)


def test_model_without_classes_has_own_objective(batch):
    made = module("model.name=transforming_autoencoder", "model.options={}")
    torch.manual_seed(1)
    first = made.training_step(batch, 0)
    torch.manual_seed(1)
    torch.testing.assert_close(first, made.model.objective(batch[0]))
    # The draws of a validation batch are the same in every epoch.
    made.validation_step(batch, 3)
    once = made._metric("val", "loss").compute()
    made.validation_step(batch, 3)
    torch.testing.assert_close(made._metric("val", "loss").compute(), once)
    assert set(made.metrics.keys()) == {"train_loss", "val_loss"}


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("sgd", {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "nesterov": True}),
        ("adam", {"betas": [0.8, 0.9]}, {"betas": (0.8, 0.9)}),
        ("adamw", {"eps": 1e-6, "amsgrad": True}, {"eps": 1e-6, "amsgrad": True}),
    ],
)
def test_optimizer_options(name, options, expected):
    made = make_optimizer(OptimRecipe(name, options=options), [torch.nn.Parameter(torch.zeros(1))])
    assert expected.items() <= made.defaults.items()


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("sgd", {"betas": [0.8, 0.9]}, ("sgd", "betas")),
        ("sgd", {"momentm": 0.9}, ("momentm", "momentum")),
        ("adam", {"lr": 0.1}, ("adam", "lr")),
        ("adam", {"betas": [2.0, 0.9]}, ("optim.options", "2.0")),
        ("sgd", {"nesterov": True}, ("optim.options", "nesterov")),
        ("adam", {"betas": 0.9}, ("optim.options", "0.9")),
    ],
)
def test_invalid_optimizer_options(name, options, named):
    with raises_about(ConfigError, *named):
        make_optimizer(OptimRecipe(name, options=options), [torch.nn.Parameter(torch.zeros(1))])


def test_mean_does_not_depend_on_who_adds_what():
    losses = torch.rand(2, 40, generator=torch.Generator().manual_seed(0))
    # Two processes to the end of an epoch, and two that stop in its middle: then the first one continues both sums.
    whole = [losses[0], losses[1]]
    resumed = [torch.cat([losses[:, :20].double().sum()[None], losses[0, 20:]]), losses[1, 20:]]

    def mean(shares: list[torch.Tensor]) -> torch.Tensor:
        means = [Mean(), Mean()]
        for share, part in zip(shares, means, strict=True):
            for value in share:
                part.update(value, 1)
        both = Mean()
        both.update(means[0].total + means[1].total, 80)
        return both.compute()

    assert mean(whole) == mean(resumed)
