"""The transforming auto-encoder of Hinton, Krizhevsky and Wang 2011: capsules that learn where their thing is.

Sizes as in section 2 of the paper, 30 capsules of 10 recognition and 20 generation units. As there, every capsule sees
the whole image; here it paints the whole image, too.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models._base import ImageModel, ImageShape, register_model
from torchcaps.types import Capsules


def shift_images(images: Tensor, shift: Tensor) -> Tensor:
    """Move each image by its own whole pixels (down, right), with black where nothing was.

    images [B, C, H, W] and shift [B, 2] give [B, C, H, W].

    >>> shift_images(torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.tensor([[0, 1]])).tolist()
    [[[[0.0, 1.0, 2.0]]]]
    """
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device) - shift[:, :1]  # [B, H]
    columns = torch.arange(width, device=images.device) - shift[:, 1:]  # [B, W]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]  # [B, H, W]
    sample = torch.arange(len(images), device=images.device)[:, None, None]
    places = (sample, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None])
    moved = images.permute(0, 2, 3, 1)[places].permute(0, 3, 1, 2)  # [B, C, H, W]
    return moved * inside.unsqueeze(1)


class TransformingAutoencoder(ImageModel):
    """Capsules that say where their thing is and whether it is there, and paint it where they are told.

    The recognition units of a capsule give its position x (down, right, in pixels) and its presence p; the shift d
    comes from outside and is added to x; its generation units paint from x + d, and the image is the sum over capsules
    of p_i g_i(x_i + d). The shift reaches the output on no other way than through these positions.

    It has no classes: forward gives its capsules, poses [B, I, 2] and activations [B, I].
    """

    classifies = False

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
        self.recognise = nn.Sequential(nn.Flatten(), nn.Linear(pixels, capsules * recognition), nn.Sigmoid())
        self.read = nn.Parameter(torch.empty(capsules, recognition, 3))
        self.read_bias = nn.Parameter(torch.empty(capsules, 3))
        self.generate = nn.Parameter(torch.empty(capsules, 2, generation))
        self.generate_bias = nn.Parameter(torch.empty(capsules, generation))
        self.paint = nn.Parameter(torch.empty(capsules, generation, pixels))
        self.paint_bias = nn.Parameter(torch.empty(capsules, pixels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights of all capsules anew: positions of a pixel or two, generation units that tell them apart."""
        for layer in self.recognise:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        nn.init.normal_(self.read, std=1 / math.sqrt(self.read.shape[1]))
        nn.init.normal_(self.generate, std=0.5)
        nn.init.normal_(self.generate_bias, std=1.0)
        nn.init.normal_(self.paint, std=0.01)
        for bias in (self.read_bias, self.paint_bias):
            nn.init.zeros_(bias)

    def forward(self, images: Tensor) -> Capsules:
        self.check_images(images)
        units = self.recognise(images).unflatten(1, self.read.shape[:2])  # [B, I, R]
        read = torch.einsum("bir,irp->bip", units, self.read) + self.read_bias  # [B, I, 3]
        return Capsules(read[..., :2], read[..., 2].sigmoid())

    def transform(self, images: Tensor, shift: Tensor) -> Tensor:
        """The images [B, C, H, W] as they would look after a shift [B, 2] of (down, right) pixels."""
        if shift.shape != (len(images), 2):
            raise ShapeError(
                f"shift: expected {(len(images), 2)}, down and right for each image, got {tuple(shift.shape)}"
            )
        poses, presence = self(images)  # [B, I, 2], [B, I]
        moved = poses + shift.to(poses).unsqueeze(1)  # [B, I, 2]
        units = torch.sigmoid(torch.einsum("bip,ipg->big", moved, self.generate) + self.generate_bias)  # [B, I, G]
        # The presence goes in before the pixels do: a sum over capsules and units is one product of matrices.
        painted = torch.einsum("big,igx->bx", units * presence.unsqueeze(-1), self.paint)  # [B, pixels]
        painted = painted + presence @ self.paint_bias  # [B, pixels]
        return painted.unflatten(1, self.image_shape)  # [B, C, H, W]

    def draw_shift(self, count: int, generator: Generator | None = None) -> Tensor:
        """Shifts [count, 2] of up to `max_shift` whole pixels each way."""
        return torch.randint(-self.max_shift, self.max_shift + 1, (count, 2), generator=generator, device="cpu")

    def objective(self, images: Tensor, generator: Generator | None = None) -> Tensor:
        """The squared error of images moved by shifts that were drawn, summed over pixels, mean over the batch."""
        shift = self.draw_shift(len(images), generator).to(images.device)
        error = self.transform(images, shift) - shift_images(images, shift)  # [B, C, H, W]
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
    """Capsules of 2011, 30 with 10 recognition and 20 generation units each: it shifts images and has no classes."""
    return TransformingAutoencoder(
        image_shape,
        num_classes,
        capsules=capsules,
        recognition=recognition,
        generation=generation,
        max_shift=max_shift,
    )
