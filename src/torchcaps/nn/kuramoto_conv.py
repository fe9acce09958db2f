"""Oscillators on a grid, coupled by a convolution."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError, ShapeError

# As of all routings.
MAX_ITERS = 1000


def _length(vectors: Tensor) -> Tensor:
    """Compute lengths [B, C, 1, H, W] of vectors [B, C, dim, H, W], above zero so that gradients are finite.

    `torch.linalg.vector_norm` over an axis that is not the last is twenty times slower.
    """
    return (vectors.square().sum(dim=2, keepdim=True) + 1e-8).sqrt()


class KuramotoConv2d(nn.Module):
    """Oscillators on a grid that synchronise with their neighbours and a stimulus.

    x <- normalise(x + step T(Omega x + conv(x) + stimulus)), `iters` times. T is the component of a force orthogonal to
    x, Omega the antisymmetric matrix of a channel's own frequency (Kuramoto's model on a sphere, as the artificial
    oscillatory neurons of Miyato et al. 2025). All oscillators of a channel start in one learned phase: a start in the
    direction of the stimulus would make the gradient grow from layer to layer.

    Args:
        channels: Number of oscillators C at a position.
        dim: Dimensions of an oscillator.
        kernel_size: Odd size of the convolution's kernel.
        iters: Number of iterations.
        step: Step size.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        stimulus: [B, C*dim, H, W]; returns states of the same shape.

    Raises:
        ConfigError: If an option is out of range.

    Example:
        >>> layer = KuramotoConv2d(8)
        >>> layer(torch.randn(2, 16, 14, 14)).shape
        torch.Size([2, 16, 14, 14])
    """

    def __init__(
        self,
        channels: int,
        dim: int = 2,
        kernel_size: int = 3,
        *,
        iters: int = 3,
        step: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if dim < 2:
            raise ConfigError(f"dim: expected at least 2, since an oscillator has to turn, got {dim}")
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ConfigError(f"kernel_size: expected an odd size, so that it has a centre, got {kernel_size}")
        if not 1 <= iters <= MAX_ITERS:
            raise ConfigError(f"iters: expected a count from 1 to {MAX_ITERS:,}, got {iters}")
        if not 0 < step < math.inf:
            raise ConfigError(f"step: expected a finite number above 0, got {step}")
        self.channels = channels
        self.dim = dim
        self.iters = iters
        self.step = step
        size = channels * dim
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.coupling = nn.Conv2d(size, size, kernel_size, padding=kernel_size // 2, bias=False, **factory)
        upper = torch.triu_indices(dim, dim, 1, device="cpu")  # [2, dim*(dim-1)/2]
        self.frequency = nn.Parameter(torch.empty(channels, upper.shape[1], **factory))
        self.start = nn.Parameter(torch.empty(channels, dim, **factory))
        self.upper: list[list[int]] = upper.tolist()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the coupling as any convolution, frequencies of deviation 0.1 radians a step, and the start phases."""
        self.coupling.reset_parameters()
        nn.init.normal_(self.frequency, std=0.1)
        nn.init.normal_(self.start)

    def omega(self) -> Tensor:
        """Return the frequencies as antisymmetric matrices.

        Returns:
            Matrices [C, dim, dim].
        """
        half = self.frequency.new_zeros(self.channels, self.dim, self.dim)
        half[:, self.upper[0], self.upper[1]] = self.frequency
        return half - half.mT

    def states(self, stimulus: Tensor) -> list[Tensor]:
        """Compute the states at the start and after each iteration.

        Args:
            stimulus: The force on each oscillator.

        Shape:
            stimulus: [B, C*dim, H, W]; returns iters + 1 tensors of that shape.

        Returns:
            The states.

        Raises:
            ShapeError: If the stimulus does not fit.
        """
        if stimulus.dim() != 4 or stimulus.shape[1] != self.channels * self.dim:
            raise ShapeError(f"stimulus: expected [B, {self.channels * self.dim}, H, W], got {tuple(stimulus.shape)}")
        start = self.start.flatten()[:, None, None].expand_as(stimulus)  # [B, C*dim, H, W]
        omega, states = self.omega(), [self._normalise(start)]
        for _ in range(self.iters):
            x = states[-1]
            drift = torch.einsum("cde,bcehw->bcdhw", omega, self._split(x)).flatten(1, 2)  # [B, C*dim, H, W]
            force = drift + self.coupling(x) + stimulus  # [B, C*dim, H, W]
            along = (self._split(force) * self._split(x)).sum(dim=2, keepdim=True)  # [B, C, 1, H, W]
            tangent = force - (along * self._split(x)).flatten(1, 2)  # [B, C*dim, H, W]
            states.append(self._normalise(x + self.step * tangent))
        return states

    def forward(self, stimulus: Tensor) -> Tensor:
        """Run all iterations and return the last states; see `states`.

        Args:
            stimulus: The force on each oscillator.

        Shape:
            stimulus: [B, C*dim, H, W]; returns the same shape.

        Returns:
            The oscillators.
        """
        return self.states(stimulus)[-1]

    def extra_repr(self) -> str:
        return f"channels={self.channels}, dim={self.dim}, iters={self.iters}, step={self.step}"

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.channels, self.dim))  # [B, C, dim, H, W]

    def _normalise(self, x: Tensor) -> Tensor:
        vectors = self._split(x)  # [B, C, dim, H, W]
        return (vectors / _length(vectors)).flatten(1, 2)  # [B, C*dim, H, W]


class KuramotoReadout(nn.Module):
    """Features of oscillators that do not depend on a common phase: the lengths of linear mixtures of them.

    m_k = |sum_c U_kc x_c + b_k| at every position (Miyato et al. 2025), large where the oscillators of a mixture are in
    phase.

    Args:
        channels: Number of oscillators C at a position.
        dim: Dimensions of an oscillator.
        out_channels: Number of mixtures.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        states: [B, C*dim, H, W]; returns features [B, out_channels, H, W].

    Example:
        >>> KuramotoReadout(8, 2, 12)(torch.randn(2, 16, 14, 14)).shape
        torch.Size([2, 12, 14, 14])
    """

    def __init__(
        self,
        channels: int,
        dim: int,
        out_channels: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.mix = nn.Conv2d(channels * dim, out_channels * dim, 1, device=device, dtype=dtype)

    def forward(self, states: Tensor) -> Tensor:
        """Return the lengths of linear mixtures of oscillators.

        Args:
            states: The oscillators.

        Shape:
            states: [B, C*dim, H, W]; returns [B, out, H, W].

        Returns:
            The features.
        """
        return _length(self.mix(states).unflatten(1, (-1, self.dim))).squeeze(2)  # [B, out, H, W]
