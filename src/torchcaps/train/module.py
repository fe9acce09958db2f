"""The Lightning module: one training step of any model under a recipe."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from torchcaps._registry import check_options
from torchcaps.data import ImageData
from torchcaps.data.loader import mix_seed
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
    that is under way; `means` makes a row of it.
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
        self.totals = {"train": torch.zeros(3), "val": torch.zeros(3)}

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout and the like follow from seed, step and process alone, so that no generator has to be saved.
        torch.manual_seed(mix_seed(self.recipe.seed, self.global_step, self.global_rank))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._step("train", batch)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        # With several processes the last batch may leave one without an image.
        if len(batch[1]):
            # What an objective draws must be the same in every epoch, so that epochs can be compared.
            seed = mix_seed(self.recipe.seed, batch_idx, self.global_rank)
            self._step("val", batch, torch.Generator().manual_seed(seed))

    def _step(self, part: str, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        labels = batch[1]
        if self.model.classifies:
            loss, right = self._classify(batch)
        else:
            loss, right = self.model.objective(batch[0], generator), labels.new_zeros(())
        sums = torch.stack([loss.detach().float() * len(labels), right, right.new_tensor(len(labels))])  # [3]
        self.totals[part] = self.totals[part].to(sums.device) + sums
        return loss

    def _classify(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, and how many answers are right."""
        images, labels = batch[:2]
        capsules = self.model(images)
        loss = self.loss(capsules, labels)
        if self.model.decoder is not None and self.reconstruction.weight:
            # Where two things are in one image, each is redrawn by itself, as it looks alone.
            pairs = [(labels, images)] if labels.dim() == 1 else zip(labels.unbind(1), batch[2].unbind(1), strict=True)
            for classes, targets in pairs:
                loss = loss + self.reconstruction(self.model.decode(capsules, classes), targets)
        return loss, right_answers(capsules.activations, labels).sum()

    def configure_optimizers(self) -> Any:
        optim: OptimRecipe = self.recipe.optim
        # One pass over the parameters; the default makes a pass for each of its operations.
        options = {"lr": optim.lr, "weight_decay": optim.weight_decay, "fused": True}
        optimiser = _OPTIMISERS[optim.name](self.parameters(), **options)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: lr_factor(optim, step, self.total_steps))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def means(self, part: str) -> dict[str, float]:
        """Mean loss and, where there are classes, accuracy of the pass so far, over all processes; sums start anew."""
        loss, right, count = self._gather(part).tolist()
        self.totals[part] = torch.zeros(3)
        means = {f"{part}_loss": loss / count}
        return {**means, f"{part}_accuracy": right / count} if self.model.classifies else means

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["train_totals"] = self._gather("train")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # The sums are of all processes: the first one carries them on.
        self.totals["train"] = checkpoint["train_totals"] * (self.global_rank == 0)

    def _gather(self, part: str) -> Tensor:
        return self.trainer.strategy.reduce(self.totals[part].to(self.device, copy=True), reduce_op="sum").cpu()
