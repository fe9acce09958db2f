"""Rejection of images that belong to none of the classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.evaluation._weighted import rank_metrics
from torchcaps.models import ImageModel
from torchcaps.types import Capsules, Progress

# Share of the validation images that are rejected, at most.
RATE = 0.05
# The scores, and how a message names them.
NOVELTY = {
    "activation": "the largest activation",
    "energy": "the energy",
    "reconstruction": "the distance of the reconstruction",
}


def novelty(model: ImageModel, images: Tensor, capsules: Capsules | None = None) -> dict[str, Tensor]:
    """Return scores that are larger for images of none of the classes.

    `activation` is minus the largest class activation; for a network without capsules that is minus the maximum
    softmax probability (Hendrycks and Gimpel 2017). `energy` is -log sum exp(scores), for networks with one score per
    class (Liu et al. 2020). `reconstruction` is the mean squared difference of the image and its reconstruction from
    the predicted class, for networks with a decoder (Frosst et al. 2018, DARCCC).

    Args:
        model: The network, in evaluation mode.
        images: The images.
        capsules: Class capsules of the images, if the model has computed them already.

    Shape:
        images: [B, C, H, W]; each score is [B].

    Returns:
        The scores by name.

    Raises:
        ConfigError: If the model does not classify.

    Example:
        >>> from torchcaps import create_model
        >>> sorted(novelty(create_model("capsnet_small").eval(), torch.rand(2, 1, 28, 28)))
        ['activation', 'reconstruction']
    """
    if not model.is_classifier:
        raise ConfigError(f"model: expected a classifier, got {type(model).__name__}")
    if capsules is None:
        capsules = model(images)
    assert isinstance(capsules, Capsules)
    scores = {"activation": -capsules.activations.max(dim=-1).values}  # [B]
    if capsules.poses.shape[-1] == 1:
        scores["energy"] = -capsules.poses.squeeze(-1).logsumexp(dim=-1)
    if model.decoder is not None:
        scores["reconstruction"] = (model.decode(capsules) - images).square().flatten(1).mean(dim=1)
    return scores


@torch.inference_mode()
def novelty_of_data(
    model: ImageModel, data: ImageDataset, *, batch_size: int = 256, progress: Progress | None = None
) -> dict[str, Tensor]:
    """Return the scores of `novelty` for every image of a data set.

    Args:
        model: The network.
        data: The images.
        batch_size: Number of images per batch.
        progress: Called with (done, total) after each batch.

    Shape:
        Each score is [N].

    Returns:
        The scores by name.

    Raises:
        ConfigError: If there are no images, or the model does not classify.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(4))
        >>> novelty_of_data(create_model("cnn_small"), few)["energy"].shape
        torch.Size([4])
    """
    if not len(data):
        raise ConfigError(f"data: expected at least one image, got 0 ({data.name}, {data.split})")
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    parts: list[dict[str, Tensor]] = []
    try:
        for batch in data.batches(batch_size):
            parts.append(novelty(model, to_float(batch.images.to(device))))
            if progress is not None:
                progress(min(len(parts) * batch_size, len(data)), len(data))
    finally:
        model.train(was_training)
    return {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}


@dataclass(frozen=True)
class Rejection:
    """Thresholds above which an image is rejected as none of the classes.

    Attributes:
        thresholds: The threshold of each score of `novelty`.
        rate: Share of the validation images that all thresholds together reject, at most.
        count: Number of validation images.
    """

    thresholds: dict[str, float]
    rate: float
    count: int

    @classmethod
    def fit(cls, scores: Mapping[str, Tensor], rate: float = RATE) -> Rejection:
        """Choose thresholds that reject at most a share `rate` of the given images, the same share for each score.

        Args:
            scores: Scores [N] of images of the classes, which were not trained on.
            rate: The share, between 0 and 1.

        Returns:
            The thresholds.

        Raises:
            ConfigError: If the rate is out of range, or a score is not finite.
        """
        if not 0 < rate < 1:
            raise ConfigError(f"rate: expected a share between 0 and 1, got {rate}")
        if not all(len(score) and score.isfinite().all() for score in scores.values()):
            raise ConfigError("scores: expected finite scores of at least one image, got others")
        share = rate / len(scores)
        thresholds = {
            name: float(score.double().quantile(1 - share, interpolation="higher")) for name, score in scores.items()
        }
        return cls(thresholds, rate, len(next(iter(scores.values()))))

    def reason(self, scores: Mapping[str, float]) -> str | None:
        """Return why an image is rejected, or None.

        Args:
            scores: The scores of the image.

        Returns:
            The sentence.
        """
        for name, threshold in self.thresholds.items():
            if name in scores and scores[name] > threshold:
                sign, word = (-1, "below") if name == "activation" else (1, "above")
                return (
                    f"{NOVELTY[name]} is {sign * scores[name]:.3g}, {word} {sign * threshold:.3g}; at most "
                    f"{self.rate / len(self.thresholds):.1%} of {self.count:,} validation images are so far off"
                )
        return None

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns:
            A dictionary.
        """
        return asdict(self)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Rejection:
        """Read what `to_json` returned.

        Args:
            table: The dictionary.

        Returns:
            The thresholds.

        Raises:
            CheckpointError: If the table is damaged.
        """
        try:
            thresholds = {str(name): float(value) for name, value in table["thresholds"].items() if name in NOVELTY}
            return cls(thresholds, float(table["rate"]), int(table["count"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"rejection: expected thresholds by score, got {table!r} ({error!r})") from None


def detection(known: Tensor, new: Tensor) -> tuple[float, float]:
    """Return how well a score separates new images from known ones.

    Args:
        known: Scores of images of the classes.
        new: Scores of other images, larger if the score works.

    Shape:
        known: [N]; new: [M].

    Returns:
        Area under the ROC curve, and the share of the new images that are accepted at the threshold that accepts 95 %
        of the known ones.

    Raises:
        ConfigError: If a score is not finite, or there are none.

    Example:
        >>> detection(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.25, 0.9]))
        (0.8333333333333334, 0.5)
    """
    scores = torch.cat([known, new]).double()
    if not len(known) or not len(new) or not scores.isfinite().all():
        raise ConfigError(
            f"scores: expected finite scores of known and of new images, got {len(known)} and {len(new)}, of which "
            f"{int((~scores.isfinite()).sum())} are not finite"
        )
    is_new = torch.arange(len(scores)) >= len(known)
    area, _ = rank_metrics(scores, is_new, torch.ones(1, len(scores), dtype=torch.float64))
    threshold = known.double().quantile(0.95, interpolation="higher")
    return float(area), float((new.double() <= threshold).double().mean())
