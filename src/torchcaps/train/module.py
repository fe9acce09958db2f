"""The Lightning module: one training step of any model under a recipe."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from torchcaps._registry import check_options
from torchcaps.data import ImageData
from torchcaps.data.loader import mix_seed
from torchcaps.errors import TorchcapsError
from torchcaps.models import ImageModel, create_model
from torchcaps.nn import LOSSES, ReconstructionLoss, right_answers
from torchcaps.train.recipe import LossRecipe, OptimRecipe, Recipe
from torchcaps.train.schedule import lr_factor

_OPTIMISERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}

# Images and labels; where labels are [B, 2], also what each of the two things looks like alone, [B, 2, C, H, W].
Batch = tuple[Tensor, ...]


def make_model(recipe: Recipe, data: ImageData) -> ImageModel:
    """The model that a recipe names, with fresh weights, for the images and classes of its data."""
    shape = recipe.data.augment.output_shape(data.image_shape)
    return create_model(recipe.model.name, shape, data.num_classes, **recipe.model.options)


def make_loss(recipe: LossRecipe, model: ImageModel) -> nn.Module:
    """The loss that a recipe names, or else the model's own."""
    name = recipe.name or model.loss
    loss = LOSSES[name]
    check_options(recipe.options, inspect.signature(loss).parameters, f"loss '{name}'")
    return loss(**recipe.options)


class TrainModule(LightningModule):
    """A model with its loss and optimiser: loss = classification + reconstruction, the decoder masked by the label.

    A model that does not classify brings its own objective. `totals` sums loss, right answers and images of the pass
    that is under way; `means` makes a row of it. Where weights are averaged, `averaged` is the mean so far.
    """

    def __init__(self, model: ImageModel, recipe: Recipe, total_steps: int) -> None:
        super().__init__()
        self.model = model
        self.recipe = recipe
        self.total_steps = total_steps
        self.loss = make_loss(recipe.loss, model)
        self.reconstruction = ReconstructionLoss(
            recipe.loss.reconstruction, scale=recipe.loss.scale, num_classes=model.num_classes
        )
        # A decoder that nobody trains must not wait for gradients in the other processes.
        if model.decoder is not None and not self.reconstruction.weight:
            model.decoder.requires_grad_(False)
        self.averaged = copy.deepcopy(model).requires_grad_(False) if recipe.optim.average else None
        self.totals = {"train": torch.zeros(3), "val": torch.zeros(3)}

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout and the like follow from seed, step and process alone, so that no generator has to be saved.
        torch.manual_seed(mix_seed(self.recipe.seed, self.global_step, self.global_rank))

    @property
    def answering(self) -> ImageModel:
        """The network that is validated and kept: the mean of the weights where there is one."""
        return self.model if self.averaged is None else self.averaged

    def optimizer_step(self, *args: Any, **options: Any) -> None:
        super().optimizer_step(*args, **options)
        # Here and not at the end of the batch: a checkpoint may be written before that.
        if self.averaged is not None:
            self._average(self.averaged)

    @torch.no_grad()
    def _average(self, averaged: ImageModel) -> None:
        # The first steps are soon forgotten, so that the mean does not hang on weights that know nothing.
        share = max(1 - self.recipe.optim.average, 10 / (10 + self.global_step))
        current = self.model.state_dict()
        for name, mean in averaged.state_dict().items():
            if mean.is_floating_point():
                mean.lerp_(current[name], share)
            else:
                mean.copy_(current[name])

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self._step("train", self.model, batch)
        if not torch.isfinite(loss):
            raise TorchcapsError(
                f"loss: expected finite numbers, got {loss.item()} at step {self.global_step + 1}; no step is skipped, "
                f"so the run ends here: train again with a smaller learning rate (optim.lr is {self.recipe.optim.lr})"
            )
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        # With several processes the last batch may leave one without an image.
        if len(batch[1]):
            # What an objective draws must be the same in every epoch, so that epochs can be compared.
            seed = mix_seed(self.recipe.seed, batch_idx, self.global_rank)
            self._step("val", self.answering, batch, torch.Generator().manual_seed(seed))

    def _step(self, part: str, model: ImageModel, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        labels = batch[1]
        if model.classifies:
            loss, right = self._classify(model, batch)
        else:
            loss, right = model.objective(batch[0], generator), labels.new_zeros(())
        sums = torch.stack([loss.detach().float() * len(labels), right, right.new_tensor(len(labels))])  # [3]
        self.totals[part] = self.totals[part].to(sums.device) + sums
        return loss

    def _classify(self, model: ImageModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, and how many answers are right."""
        images, labels = batch[:2]
        capsules = model(images)
        loss = self.loss(capsules, labels)
        if model.decoder is not None and self.reconstruction.weight:
            # Where two things are in one image, each is redrawn by itself, as it looks alone.
            pairs = [(labels, images)] if labels.dim() == 1 else zip(labels.unbind(1), batch[2].unbind(1), strict=True)
            for classes, targets in pairs:
                loss = loss + self.reconstruction(model.decode(capsules, classes), targets)
        return loss, right_answers(capsules.activations, labels).sum()

    def configure_optimizers(self) -> Any:
        optim: OptimRecipe = self.recipe.optim
        # One pass over the parameters; the default makes a pass for each of its operations.
        options = {"lr": optim.lr, "weight_decay": optim.weight_decay, "fused": True}
        optimiser = _OPTIMISERS[optim.name](self.model.parameters(), **options)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: lr_factor(optim, step, self.total_steps))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def means(self, part: str) -> dict[str, float]:
        """Mean loss and, where there are classes, accuracy of the pass so far, over all processes; sums start anew.

        Of a pass without images, as validation is where no image is held out, there is nothing to say.
        """
        loss, right, count = self._gather(part).tolist()
        self.totals[part] = torch.zeros(3)
        if not count:
            return {}
        means = {f"{part}_loss": loss / count}
        return {**means, f"{part}_accuracy": right / count} if self.model.classifies else means

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["train_totals"] = self._gather("train")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # The sums are of all processes: the first one carries them on.
        self.totals["train"] = checkpoint["train_totals"] * (self.global_rank == 0)

    def _gather(self, part: str) -> Tensor:
        return self.trainer.strategy.reduce(self.totals[part].to(self.device, copy=True), reduce_op="sum").cpu()
