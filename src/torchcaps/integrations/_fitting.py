"""A training loop for arrays in memory that can be stopped and resumed after every epoch."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps._files import MAX_TENSORS, read_bounded, write_bytes
from torchcaps.data.loader import mix_seed
from torchcaps.errors import CheckpointError, TorchcapsError
from torchcaps.integrations._samples import ImageLayout, Samples
from torchcaps.models import ImageModel
from torchcaps.nn import LOSSES, ReconstructionLoss

FORMAT = 1


class Fitting:
    """A network with its loss and optimiser.

    All random numbers of an epoch depend on the seed and the number of the epoch alone, so that a training which
    continues from a checkpoint ends as one that was not interrupted.

    Args:
        network: The network; it is trained in place.
        layout: Conversion of rows to images.
        lr: Learning rate.
        batch_size: Largest number of images in a batch.
        seed: Seed of the order of the images and of dropout.

    Attributes:
        losses: Mean loss of each epoch.
    """

    def __init__(self, network: ImageModel, layout: ImageLayout, *, lr: float, batch_size: int, seed: int) -> None:
        self.network, self.layout = network, layout
        self.lr, self.batch_size, self.seed = lr, batch_size, seed
        self.loss = LOSSES[network.default_loss]().to(device_of(network))
        self.reconstruction = ReconstructionLoss()
        self.optimizer = torch.optim.Adam(network.parameters(), lr=lr)
        self.losses: list[float] = []

    def run_epoch(self, samples: Samples, total: int | None = None) -> None:
        """Train on as many samples as there are, each in proportion to its weight.

        Args:
            samples: The samples.
            total: Number of epochs over which the learning rate falls to 0 along a cosine; None for a constant rate.

        Raises:
            TorchcapsError: If the loss is not finite.
        """
        epoch = len(self.losses)
        order = samples.draw(np.random.default_rng((self.seed, epoch)))
        # At least two images in each batch, for the statistics of batch normalisation.
        order = np.resize(order, max(2, len(order)))
        batches = np.array_split(order, min(math.ceil(len(order) / self.batch_size), len(order) // 2))
        device, mean = device_of(self.network), 0.0
        self.network.train()
        with seeded(mix_seed(self.seed, epoch)):
            for number, batch in enumerate(batches):
                if total is not None:
                    self._set_rate((epoch + number / len(batches)) / total)
                images = self.layout.images(samples.rows[batch]).to(device)  # [B, C, H, W]
                mean += self._step(images, torch.from_numpy(samples.labels[batch]).to(device)) * len(batch)
        self.network.eval()
        self.losses.append(mean / len(order))
        if not math.isfinite(self.losses[-1]):
            raise TorchcapsError(f"loss: expected a finite number, got {self.losses[-1]} (lower lr={self.lr})")

    def _set_rate(self, done: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * 0.5 * (1 + math.cos(math.pi * done))

    def _step(self, images: Tensor, labels: Tensor) -> float:
        capsules = self.network(images)
        loss = self.loss(capsules, labels)
        if self.network.decoder is not None:
            loss = loss + self.reconstruction(self.network.decode(capsules, labels), images)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def write_state(self, path: Path) -> None:
        """Write the state of the training to a file, atomically."""
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, "seed": self.seed, "losses": self.losses, **self._parts()}, buffer)
        write_bytes(path, buffer.getvalue())

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state that `read_state` returned."""
        self.seed, self.losses = state["seed"], list(state["losses"])
        for part in (self.network, self.loss, self.optimizer):
            part.load_state_dict(state[type(part).__name__])

    def _parts(self) -> dict[str, Any]:
        return {type(part).__name__: part.state_dict() for part in (self.network, self.loss, self.optimizer)}


def read_state(path: Path) -> dict[str, Any] | None:
    """Read the state that `Fitting.write_state` wrote.

    Args:
        path: The file.

    Returns:
        The state, or None if there is no file.

    Raises:
        CheckpointError: If the file is damaged or of another format.
    """
    if not path.exists():
        return None
    try:
        state = torch.load(io.BytesIO(read_bounded(path, MAX_TENSORS)), map_location="cpu", weights_only=True)
        if state["format"] != FORMAT:
            raise ValueError(f"format {state['format']}")
        return state
    except Exception as error:
        # torch.load has no common class of errors.
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"folder: expected a checkpoint of this fit, got '{path}' ({reason}); remove it to start again"
        ) from None


@torch.no_grad()
def activations_of(network: ImageModel, layout: ImageLayout, rows: np.ndarray, batch_size: int = 256) -> Tensor:
    """Compute the activations of the class capsules, [n, J], in float64."""
    chunks = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    device = device_of(network)
    return torch.cat([network(layout.images(chunk).to(device)).activations.cpu().double() for chunk in chunks])


def device_of(network: ImageModel) -> torch.device:
    """Return the device of a network's weights."""
    return next(network.parameters()).device


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers, and restore their state afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
