"""One number per class: the adapter between class capsules and tools that expect a classifier's output."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError

ScoreKind = Literal["probabilities", "log_probabilities", "scores"]


def log_probabilities(activations: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the logarithms of class probabilities: log softmax(log(a) / T).

    With temperature 1 the probability of a class is its share of all activations, a_j / sum_k a_k. For a network whose
    activations are the softmax of scores, it is softmax(scores / T) (Guo et al. 2017, section 4.2).

    Args:
        activations: Activations of the class capsules, in [0, 1].
        temperature: Positive number; less than 1 makes the probabilities more certain, more than 1 less.

    Shape:
        activations: [..., J]; returns [..., J].

    Returns:
        The logarithms.

    Example:
        >>> log_probabilities(torch.tensor([0.6, 0.2])).exp()
        tensor([0.7500, 0.2500])
    """
    logs = activations.clamp(min=torch.finfo(activations.dtype).tiny).log()  # [..., J]
    return (logs / temperature).log_softmax(dim=-1)


class Scores(nn.Module):
    """A model whose output is one tensor [B, J] instead of capsules, as other libraries expect it.

    Take `log_probabilities` where a library expects logits: a softmax over them gives the probabilities.

    Args:
        model: A network with class capsules, such as an `ImageModel`.
        kind: `probabilities` sum to 1 over the classes, `log_probabilities` are their logarithms, and `scores` are the
            activations of the class capsules, unchanged.
        temperature: Temperature of the probabilities. Default: the one that was fitted on the validation split at the
            end of the training and stored with the weights; 1 if none was.

    Attributes:
        temperature: The temperature in use.
        calibrated: Whether the temperature was given or fitted.

    Shape:
        images [B, C, H, W]; returns [B, J].

    Raises:
        ConfigError: If the kind is unknown, the temperature is not positive, or the model does not classify.

    Example:
        >>> from torchcaps import create_model
        >>> scores = Scores(create_model("capsnet_small").eval())
        >>> scores(torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 10])
        >>> scores.temperature, scores.calibrated
        (1.0, False)
    """

    def __init__(
        self, model: nn.Module, kind: ScoreKind = "probabilities", *, temperature: float | None = None
    ) -> None:
        super().__init__()
        if kind not in get_args(ScoreKind):
            raise ConfigError(f"kind: expected one of {', '.join(get_args(ScoreKind))}, got '{kind}'")
        if not getattr(model, "is_classifier", True):
            raise ConfigError(f"model: expected a classifier, got {type(model).__name__}")
        chosen = getattr(model, "temperature", None) if temperature is None else temperature
        if chosen is not None and not 0 < chosen < math.inf:
            raise ConfigError(f"temperature: expected a positive number, got {chosen}")
        self.model = model
        self.kind: ScoreKind = kind
        self.calibrated = chosen is not None
        self.temperature = 1.0 if chosen is None else float(chosen)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the scores of a batch.

        Args:
            images: The images.

        Returns:
            One number per image and class.
        """
        activations = self.model(images).activations  # [B, J]
        if self.kind == "scores":
            return activations
        logs = log_probabilities(activations, self.temperature)  # [B, J]
        return logs if self.kind == "log_probabilities" else logs.exp()

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, temperature={self.temperature:.4g}"
