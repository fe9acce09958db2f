"""The transforming auto-encoder of Hinton, Krizhevsky and Wang 2011: capsules that learn positions.

Sizes are those of section 2 of the paper: 30 capsules of 10 recognition and 20 generation units. Every capsule reads
the whole image, as in the paper; here it also generates the whole image.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models._base import ImageModel, ImageShape
from torchcaps.models._create import register_model
from torchcaps.ops.images import shift as shift_images
from torchcaps.types import Capsules


class TransformingAutoencoder(ImageModel):
    """Transforming auto-encoder of Hinton et al. 2011: reconstructs an image shifted by a given number of pixels.

    The recognition units of capsule i give its position x_i (down, right, in pixels) and its presence p_i. The shift d
    is added to the position. The generation units g_i draw from x_i + d, and the output is the sum over capsules of
    p_i g_i(x_i + d). The positions are the only path from the shift to the output.

    The model is not a classifier: `forward` returns its capsules, and `objective` is its training loss.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Ignored; every model factory takes it.
        capsules: Number of capsules.
        recognition: Recognition units per capsule.
        generation: Generation units per capsule.
        max_shift: Largest shift in training, in pixels.

    Shape:
        images [B, C, H, W]; returns poses [B, I, 2] and activations [B, I].

    Raises:
        ConfigError: If a count is less than 1, or `max_shift` is negative.

    Example:
        >>> model = TransformingAutoencoder((1, 28, 28), 10)
        >>> model.transform(torch.rand(2, 1, 28, 28), torch.tensor([[0, 1], [2, 0]])).shape
        torch.Size([2, 1, 28, 28])
    """

    is_classifier = False
    stem: nn.Sequential

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        capsules: int = 30,
        recognition: int = 10,
        generation: int = 20,
        max_shift: int = 2,
    ) -> None:
        super().__init__(image_shape, num_classes)
        for name, value in (("capsules", capsules), ("recognition", recognition), ("generation", generation)):
            if value < 1:
                raise ConfigError(f"{name}: expected a count of at least 1, got {value}")
        if max_shift < 0:
            raise ConfigError(f"max_shift: expected at least 0 pixels, got {max_shift}")
        self.max_shift = max_shift
        pixels = math.prod(image_shape)
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(pixels, capsules * recognition), nn.Sigmoid())
        self.read = nn.Parameter(torch.empty(capsules, recognition, 3))
        self.read_bias = nn.Parameter(torch.empty(capsules, 3))
        self.generate = nn.Parameter(torch.empty(capsules, 2, generation))
        self.generate_bias = nn.Parameter(torch.empty(capsules, generation))
        self.paint = nn.Parameter(torch.empty(capsules, generation, pixels))
        self.paint_bias = nn.Parameter(torch.empty(capsules, pixels))
        self.head = nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the parameters: positions of a pixel or two, and generation units that distinguish them."""
        for layer in self.stem:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        nn.init.normal_(self.read, std=1 / math.sqrt(self.read.shape[1]))
        nn.init.normal_(self.generate, std=0.5)
        nn.init.normal_(self.generate_bias, std=1.0)
        nn.init.normal_(self.paint, std=0.01)
        for bias in (self.read_bias, self.paint_bias):
            nn.init.zeros_(bias)

    def features(self, images: Tensor) -> Capsules:
        """Return the capsules: positions [B, I, 2] as poses, presences [B, I] as activations."""
        self.check_images(images)
        units = self.stem(images).unflatten(1, self.read.shape[:2])  # [B, I, R]
        read = torch.einsum("bir,irp->bip", units, self.read) + self.read_bias  # [B, I, 3]
        return Capsules(read[..., :2], read[..., 2].sigmoid())

    def transform(self, images: Tensor, shift: Tensor) -> Tensor:
        """Reconstruct the images as they look after a shift.

        Args:
            images: Batch of images.
            shift: Pixels down and to the right, for each image.

        Shape:
            images [B, C, H, W], shift [B, 2]; returns [B, C, H, W].

        Returns:
            The reconstructions.

        Raises:
            ShapeError: If there is not one pair of numbers for each image.
        """
        if shift.shape != (len(images), 2):
            raise ShapeError(
                f"shift: expected {(len(images), 2)}, down and right for each image, got {tuple(shift.shape)}"
            )
        poses, presence = self(images)  # [B, I, 2], [B, I]
        moved = poses + shift.to(poses).unsqueeze(1)  # [B, I, 2]
        units = torch.sigmoid(torch.einsum("bip,ipg->big", moved, self.generate) + self.generate_bias)  # [B, I, G]
        # The presence multiplies units, not pixels: a sum over capsules and units is one matrix product.
        painted = torch.einsum("big,igx->bx", units * presence.unsqueeze(-1), self.paint)  # [B, pixels]
        painted = painted + presence @ self.paint_bias  # [B, pixels]
        return painted.unflatten(1, self.image_shape)  # [B, C, H, W]

    def sample_shift(self, count: int, generator: Generator | None = None) -> Tensor:
        """Return random shifts of up to `max_shift` whole pixels in each direction.

        Args:
            count: Number of shifts.
            generator: Source of the random numbers.

        Shape:
            returns [count, 2].

        Returns:
            The shifts.
        """
        return torch.randint(-self.max_shift, self.max_shift + 1, (count, 2), generator=generator, device="cpu")

    def objective(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """Return the squared error of randomly shifted images, summed over pixels, mean over the batch."""
        shift = self.sample_shift(len(images), generator).to(images.device)
        error = self.transform(images, shift) - shift_images(images, shift[:, 0], shift[:, 1])  # [B, C, H, W]
        return error.square().flatten(1).sum(dim=-1).mean()


@register_model("transforming_autoencoder")
def transforming_autoencoder(
    image_shape: ImageShape,
    num_classes: int,
    *,
    capsules: int = 30,
    recognition: int = 10,
    generation: int = 20,
    max_shift: int = 2,
) -> TransformingAutoencoder:
    """The capsules of 2011: 30 with 10 recognition and 20 generation units each; it shifts images, without classes.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Ignored: the network has no classes.
        capsules: Number of capsules.
        recognition: Recognition units per capsule.
        generation: Generation units per capsule.
        max_shift: Largest shift in training, in pixels.

    Returns:
        The model.
    """
    return TransformingAutoencoder(
        image_shape,
        num_classes,
        capsules=capsules,
        recognition=recognition,
        generation=generation,
        max_shift=max_shift,
    )
