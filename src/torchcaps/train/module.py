"""The Lightning module: training and validation steps of any model under a recipe."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim.swa_utils import AveragedModel
from torchmetrics import Metric

from torchcaps._registry import check_options
from torchcaps.data import ImageDataset
from torchcaps.data.loader import mix_seed
from torchcaps.errors import ConfigError, TorchcapsError
from torchcaps.evaluation import is_correct
from torchcaps.models import ImageModel, create_model
from torchcaps.nn import LOSSES, ReconstructionLoss
from torchcaps.train._strategies import shard_model
from torchcaps.train.recipe import OWN, DataRecipe, LossRecipe, ModelRecipe, OptimRecipe, Recipe, checking_options
from torchcaps.train.schedule import lr_factor

# Class of each optimiser, and its options besides learning rate and weight decay.
_OPTIMIZERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "adam": (torch.optim.Adam, ("betas", "eps", "amsgrad")),
    "adamw": (torch.optim.AdamW, ("betas", "eps", "amsgrad")),
    "sgd": (torch.optim.SGD, ("momentum", "dampening", "nesterov")),
}

# Images and labels; with two labels per image [B, 2] also the image of each object alone, [B, 2, C, H, W].
Batch = tuple[Tensor, ...]


def make_model(recipe: Recipe, data: ImageDataset) -> ImageModel:
    """Return the model of a recipe with new weights, for the images and classes of its data.

    Args:
        recipe: The recipe.
        data: Its training data.

    Returns:
        The model.
    """
    shape = recipe.data.augment.output_shape(data.image_shape)
    with checking_options("model.options", recipe.model.options):
        return create_model(recipe.model.name, shape, data.num_classes, **recipe.model.options)


def with_class_weights(recipe: Recipe, data: ImageDataset) -> Recipe:
    """Replace the class weight "balanced" of a recipe by numbers, N / (J N_k) for class k with N_k of N images.

    Args:
        recipe: The recipe.
        data: Its training data.

    Returns:
        The recipe; the given one unless its weight is "balanced".

    Raises:
        ConfigError: If images have several labels.
    """
    if recipe.loss.options.get("weight") != "balanced":
        return recipe
    if data.num_labels > 1:
        raise ConfigError("loss.options.weight: expected a number per class for images of two labels, got 'balanced'")
    counts = torch.bincount(data.labels, minlength=data.num_classes)  # [J]
    weight = (len(data) / (data.num_classes * counts.clamp(min=1))).tolist()
    return replace(recipe, loss=replace(recipe.loss, options={**recipe.loss.options, "weight": weight}))


def make_loss(recipe: LossRecipe, model: ImageModel) -> nn.Module:
    """Return the loss of a recipe, by default the model's own.

    Args:
        recipe: The `loss` table of a recipe.
        model: The model.

    Returns:
        The loss.

    Raises:
        ConfigError: If an option is unknown.
    """
    name = recipe.name or model.default_loss
    loss = LOSSES[name]
    check_options(recipe.options, inspect.signature(loss).parameters, f"loss '{name}'")
    with checking_options("loss.options", recipe.options):
        made = loss(**recipe.options)
    weight = getattr(made, "weight", None)
    if weight is not None and len(weight) != model.num_classes:
        raise ConfigError(
            f"loss.options.weight: expected {model.num_classes} numbers, one per class, got {len(weight)}"
        )
    return made


def check_mixup(recipe: Recipe, model: ImageModel) -> None:
    """Raise ConfigError if a recipe blends images that a decoder should reconstruct.

    Args:
        recipe: The recipe.
        model: Its model.

    Raises:
        ConfigError: If there are mixup and a decoder that is trained.
    """
    mixup = recipe.data.augment.mixup
    if mixup and model.decoder is not None and recipe.loss.reconstruction:
        raise ConfigError(
            f"data.augment.mixup: expected 0 with a decoder, whose images are not blends, got {mixup} "
            "(set model.options.decoder=none or loss.reconstruction=0)"
        )


def make_optimizer(recipe: OptimRecipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser of a recipe.

    Args:
        recipe: The `optim` table of a recipe.
        parameters: The parameters to train.

    Returns:
        The optimiser.

    Raises:
        ConfigError: If an option is unknown or has a value that the optimiser refuses.

    Example:
        >>> weight = nn.Parameter(torch.zeros(1))
        >>> make_optimizer(OptimRecipe("sgd", options={"momentum": 0.9}), [weight]).defaults["momentum"]
        0.9
    """
    cls, known = _OPTIMIZERS[recipe.name]
    check_options(recipe.options, known, f"optimiser '{recipe.name}'")
    # TOML has lists only.
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in recipe.options.items()}
    with checking_options("optim.options", recipe.options):
        # Fused: one pass over the parameters instead of one per operation.
        return cls(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True, **options)


def parameter_groups(model: ImageModel) -> list[Any]:
    """Return the parameters of a model for an optimiser; those of a stem with its own learning rate as a second group.

    Args:
        model: The model.

    Returns:
        Parameters, or two groups of them.
    """
    if model.stem_lr is None:
        return list(model.parameters())
    stem = list(model.stem.parameters())
    own = {id(parameter) for parameter in stem}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in own]
    return [{"params": rest}, {"params": stem, "lr": model.stem_lr}]


def _average(decay: float, mean: Tensor, current: Tensor, count: Tensor | int) -> Tensor:
    """Return the moving average of a parameter or buffer after `count` steps."""
    if not mean.is_floating_point():
        return current
    # A smaller decay in the first steps, so that the initial weights are forgotten.
    return mean.lerp(current, max(1 - decay, 10 / (10 + int(count))))


class Mean(Metric):
    """Mean over all images and processes, from sums. torchmetrics' own `MeanMetric` drops or warns of NaN.

    Attributes:
        total: Sum of the values.
        count: Number of images.

    Example:
        >>> mean = Mean()
        >>> mean.update(torch.tensor(6.0), 4)
        >>> mean.compute()
        tensor(1.5000)
    """

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        # The sum of several processes, resumed in the middle of an epoch, has another order of its terms: with 64 bits
        # the mean is the same. Metal has none.
        dtype = torch.float32 if torch.backends.mps.is_available() else torch.float64
        for name in ("total", "count"):
            self.add_state(name, torch.zeros((), dtype=dtype), dist_reduce_fx="sum")

    def update(self, total: Tensor, count: int | Tensor) -> None:
        self.total = self.total + total.to(self.total)
        self.count = self.count + count

    def compute(self) -> Tensor:
        return (self.total / self.count).float()


class CapsModule(LightningModule):
    """A model with its loss and optimiser, for the trainer of Lightning: that of `fit`, or your own.

    The loss is that of the classification plus that of the reconstruction from the capsule of the true class. A model
    that does not classify has its own objective. After each epoch `train_loss`, `train_accuracy`, `val_loss` and
    `val_accuracy` are logged, means over all images and processes: callbacks and loggers find them by these names.

    Args:
        model: The model.
        recipe: Its `loss`, `optim`, `seed` and `data.augment.mixup` are used; by default the model's own loss and Adam.
        total_steps: Number of steps of the run, at which the schedule of the learning rate ends; by default that of
            the trainer.

    Attributes:
        ema: Exponential moving average of the model; None without `optim.ema_decay`.

    Shape:
        A batch: images float [B, C, H, W] in [0, 1] and labels int64 [B], as a `DataLoader` of an `ImageDataset` gives
        it; with two objects per image labels [B, 2] and the image of each object alone, [B, 2, C, H, W].

    Example:
        >>> from lightning.pytorch import Trainer  # doctest: +SKIP
        >>> module = CapsModule(create_model("capsnet_small"))  # doctest: +SKIP
        >>> Trainer(max_epochs=5).fit(module, train_loader, val_loader)  # doctest: +SKIP
    """

    def __init__(self, model: ImageModel, recipe: Recipe | None = None, total_steps: int | None = None) -> None:
        super().__init__()
        recipe = Recipe(OWN, ModelRecipe(OWN), DataRecipe(OWN)) if recipe is None else recipe
        self.model = model
        self.recipe = recipe
        self.total_steps = total_steps
        self.loss = make_loss(recipe.loss, model)
        self.reconstruction = ReconstructionLoss(
            recipe.loss.reconstruction, scale=recipe.loss.scale, num_classes=model.num_classes
        )
        # DDP would wait for gradients of a decoder that is not trained.
        if model.decoder is not None and not self.reconstruction.weight:
            model.decoder.requires_grad_(False)
        self.ema: AveragedModel | None = None
        if recipe.optim.ema_decay:
            # In place of Lightning's callback: it updates after the checkpoint of a step may have been written.
            average = partial(_average, recipe.optim.ema_decay)
            self.ema = AveragedModel(model, avg_fn=average, use_buffers=True).requires_grad_(False)
        names = ("loss", "accuracy") if model.is_classifier else ("loss",)
        keys = [f"{split}_{name}" for split in ("train", "val") for name in names]
        self.metrics = nn.ModuleDict({key: Mean() for key in keys})

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout depends on seed, step and process only, so that no generator state has to be saved.
        torch.manual_seed(mix_seed(self.recipe.seed, self.global_step, self.global_rank))
        if self.model.freeze:
            self._freeze_stem(self.current_epoch < self.model.freeze)

    def _freeze_stem(self, frozen: bool) -> None:
        # At every step: Lightning sets the whole network to training mode after each validation.
        self.model.stem.requires_grad_(not frozen).train(not frozen)

    @property
    def validated(self) -> ImageModel:
        """The network that is validated and stored: the moving average, if there is one."""
        return self.model if self.ema is None else cast(ImageModel, self.ema.module)

    def optimizer_step(self, *args: Any, **options: Any) -> None:
        super().optimizer_step(*args, **options)
        # Here and not at the end of the batch: a checkpoint may be written before that.
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self._step("train", self.model, batch)
        if not torch.isfinite(loss):
            raise TorchcapsError(
                f"loss: expected a finite number, got {loss.item()} at step {self.global_step + 1} "
                f"(use a smaller learning rate than optim.lr={self.recipe.optim.lr})"
            )
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if len(batch[1]):
            # The same random numbers in every epoch make epochs comparable.
            seed = mix_seed(self.recipe.seed, batch_idx, self.global_rank)
            self._step("val", self.validated, batch, torch.Generator().manual_seed(seed))
        else:
            # With several processes, one may get no image of the last batch.
            nothing = torch.zeros((), device=self.device)
            self._measure("val", nothing, nothing if self.model.is_classifier else None, 0)

    def _step(self, split: str, model: ImageModel, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        if model.is_classifier:
            loss, correct = self._classify(model, batch)
        else:
            loss, correct = model.objective(batch[0], generator), None
        self._measure(split, loss.detach(), correct, len(batch[1]))
        return loss

    def _measure(self, split: str, loss: Tensor, correct: Tensor | None, count: int) -> None:
        """Add the mean loss of `count` images, and which of them are correct, to the metrics of a split."""
        self._metric(split, "loss").update(loss.float() * count, count)
        if correct is not None:
            self._metric(split, "accuracy").update(correct.sum(), count)
        # Without a trainer, a step can be called but nothing is logged.
        if self._trainer is not None:
            # Lightning reduces the metrics over all processes at the end of the epoch, and resets them.
            own = {key: metric for key, metric in self.metrics.items() if key.startswith(split)}
            self.log_dict(cast(dict[str, Any], own), on_step=False, on_epoch=True)

    def _metric(self, split: str, name: str) -> Mean:
        return cast(Mean, self.metrics[f"{split}_{name}"])

    def _classify(self, model: ImageModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss, and which predictions are correct, [B]."""
        images, labels = batch[:2]
        if self.recipe.data.augment.mixup and model.training:
            return self._classify_mixed(model, images, labels)
        capsules = model(images)
        loss = self.loss(capsules, labels)
        if model.decoder is not None and self.reconstruction.weight:
            # With two objects in an image, each is reconstructed alone.
            pairs = [(labels, images)] if labels.dim() == 1 else zip(labels.unbind(1), batch[2].unbind(1), strict=True)
            for classes, targets in pairs:
                if labels.dim() == 2:
                    # Two objects of one class have one capsule, which reconstructs both.
                    one_class = (labels[:, 0] == labels[:, 1]).view(-1, 1, 1, 1)  # [B, 1, 1, 1]
                    targets = torch.where(one_class, images, targets)
                loss = loss + self.reconstruction(model.decode(capsules, classes), targets)
        return loss, is_correct(capsules.activations, labels)

    def _classify_mixed(self, model: ImageModel, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Blend each image with another of the batch, and their losses in the same shares (mixup)."""
        alpha = torch.tensor(self.recipe.data.augment.mixup)
        share = torch.distributions.Beta(alpha, alpha).sample().item()
        # The larger share first, so that the accuracy is that of the class that is seen more.
        share, order = max(share, 1 - share), torch.randperm(len(labels)).to(labels.device)
        capsules = model(share * images + (1 - share) * images[order])
        loss = share * self.loss(capsules, labels) + (1 - share) * self.loss(capsules, labels[order])
        return loss, is_correct(capsules.activations, labels)

    def configure_model(self) -> None:
        # Lightning calls it once the processes are connected.
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            for model in {self.model, self.validated}:
                if not isinstance(model, FSDPModule):
                    shard_model(model, self.device_mesh["data_parallel"])  # pyright: ignore[reportOptionalSubscript]

    def configure_optimizers(self) -> Any:
        optim = self.recipe.optim
        total = int(self.trainer.estimated_stepping_batches) if self.total_steps is None else self.total_steps
        optimizer = make_optimizer(optim, parameter_groups(self.model))
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(optim, step, total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def means(self, split: str) -> dict[str, float]:
        """Return the mean loss and accuracy of the pass, over all processes.

        Args:
            split: "train" or "val".

        Returns:
            The metrics, named after the split; the accuracy of classifiers only; nothing for a pass without images.
        """
        loss, correct, count = self.sum_totals(split).tolist()
        if not count:
            return {}
        means = {f"{split}_loss": loss / count}
        return {**means, f"{split}_accuracy": correct / count} if self.model.is_classifier else means

    def sum_totals(self, split: str) -> Tensor:
        """Return the sums of the pass over all processes.

        Args:
            split: "train" or "val".

        Returns:
            Loss, correct predictions and images, [3].
        """
        loss = self._metric(split, "loss")
        correct = self._metric(split, "accuracy").total if self.model.is_classifier else torch.zeros_like(loss.total)
        sums = torch.stack([loss.total, correct, loss.count]).to(self.device)
        return self.trainer.strategy.reduce(sums, reduce_op="sum").cpu()

    def restore_totals(self, split: str, totals: Tensor) -> None:
        """Continue the sums of a pass that was interrupted.

        Args:
            split: "train" or "val".
            totals: What `sum_totals` returned; zeros in all processes but one.
        """
        metric = self._metric(split, "loss")
        loss, correct, count = totals.to(metric.total)
        metric.update(loss, count)
        if self.model.is_classifier:
            self._metric(split, "accuracy").update(correct, count)
