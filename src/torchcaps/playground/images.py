"""Images between the page and the network: bytes in base64, and drawings normalised like the digits of the data."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from torch import Tensor
from torch.nn import functional as F

from torchcaps.data.readers.image_files import fit_image

MAX_SIDE = 256
# In three colours, and within the limit of a request's body.
MAX_UPLOAD_SIDE = 224
# Pixels of a drawing below this level are background.
BACKGROUND = 0.05
# MNIST scales a digit to 20 of 28 pixels (LeCun et al. 1998). Two digits of MultiMNIST that are shifted against each
# other take more of their 36 pixels.
FILL, PAIR_FILL = 20 / 28, 26 / 36

SampleNumber = Annotated[int, Field(ge=0, le=100_000, strict=True)]


class RequestModel(BaseModel):
    """Base of all request bodies: unknown fields are errors, and numbers are strict (`true` is not 1)."""

    model_config = ConfigDict(extra="forbid")


class Bitmap(RequestModel):
    """A grey image drawn on the page.

    Attributes:
        width: Number of columns.
        height: Number of rows.
        pixels: The bytes in base64, row by row; 0 is background, 255 is ink.
    """

    width: int = Field(ge=1, le=MAX_SIDE, strict=True)
    height: int = Field(ge=1, le=MAX_SIDE, strict=True)
    pixels: str = Field(
        max_length=4 * ((MAX_SIDE * MAX_SIDE + 2) // 3), json_schema_extra={"contentEncoding": "base64"}
    )

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        _check_bytes(self.pixels, self.width * self.height)
        return self

    def tensor(self) -> Tensor:
        """Decode the pixels.

        Shape:
            returns [H, W], floats in [0, 1].
        """
        grey = np.frombuffer(base64.b64decode(self.pixels), np.uint8).reshape(self.height, self.width)
        return torch.from_numpy(grey.astype(np.float32) / 255)


def _check_bytes(pixels: str, expected: int) -> None:
    """Raise ValueError unless a text is base64 of a number of bytes."""
    try:
        count = len(base64.b64decode(pixels, validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("pixels: expected base64") from None
    if count != expected:
        raise ValueError(f"pixels: expected {expected} bytes, got {count}")


class ColourBitmap(RequestModel):
    """An image in colour that was dropped or pasted on the page.

    Attributes:
        width: Number of columns.
        height: Number of rows.
        pixels: Red, green and blue of every pixel in base64, row by row.
    """

    width: int = Field(ge=1, le=MAX_UPLOAD_SIDE, strict=True)
    height: int = Field(ge=1, le=MAX_UPLOAD_SIDE, strict=True)
    pixels: str = Field(max_length=4 * MAX_UPLOAD_SIDE**2, json_schema_extra={"contentEncoding": "base64"})

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        _check_bytes(self.pixels, 3 * self.width * self.height)
        return self

    def fitted(self, image_shape: tuple[int, ...]) -> Tensor:
        """Scale the image in proportion, with a border in the colour of its edges, as `data.read_image` does.

        Args:
            image_shape: Channels, height and width of the result.

        Shape:
            returns [1, C, H, W], floats in [0, 1].

        Returns:
            The image.
        """
        from PIL import Image

        channels, height, width = image_shape
        image = Image.frombytes("RGB", (self.width, self.height), base64.b64decode(self.pixels))
        fitted = fit_image(image if channels == 3 else image.convert("L"), height, width)
        levels = torch.from_numpy(np.array(fitted, np.float32) / 255).reshape(height, width, -1)  # [H, W, c]
        return levels.permute(2, 0, 1).expand(channels, -1, -1).unsqueeze(0)  # [1, C, H, W]

    def ink(self) -> Tensor:
        """The image as a drawing: ink is 1, whether it is dark on light paper or light on dark.

        Shape:
            returns [h, w], floats in [0, 1].
        """
        grey = self.fitted((1, self.height, self.width))[0, 0]  # [h, w]
        edge = torch.cat([grey[0], grey[-1], grey[:, 0], grey[:, -1]]).median()
        ink = 1 - grey if edge > 0.5 else grey
        return (ink - (1 - edge if edge > 0.5 else edge)).clamp(0, 1)


class SampleSource(RequestModel):
    """An image of the data set, alone or with a second one on top.

    Attributes:
        sample: Number of the image.
        second: Number of the overlaid image.
    """

    sample: SampleNumber
    second: SampleNumber | None = None


class DrawingSource(RequestModel):
    """An image drawn on the page."""

    drawing: Bitmap


class UploadSource(RequestModel):
    """An image that was dropped or pasted on the page."""

    upload: ColourBitmap


def _source_kind(value: Any) -> str:
    for kind, model in (("drawing", DrawingSource), ("upload", UploadSource)):
        if isinstance(value, model) or (isinstance(value, dict) and kind in value):
            return kind
    return "sample"


# The input of the network: a sample, a drawing or an image of the user.
ImageSource = Annotated[
    Annotated[SampleSource, Tag("sample")]
    | Annotated[DrawingSource, Tag("drawing")]
    | Annotated[UploadSource, Tag("upload")],
    Discriminator(_source_kind),
]


class EncodedImages(BaseModel):
    """Images of one size as bytes.

    Attributes:
        count: Number of images.
        width: Columns of an image.
        height: Rows of an image.
        channels: 1 (grey) or 3 (RGB).
        data: The bytes in base64, [count, height, width, channels].
    """

    count: int
    width: int
    height: int
    channels: int
    data: str


def encode_images(images: Tensor) -> EncodedImages:
    """Encode images for the page.

    Images with 1 or 3 channels are encoded completely, of all others only the first channel.

    Args:
        images: Images in [0, 1].

    Shape:
        images: [N, C, H, W].

    Returns:
        The images as bytes in base64.

    Example:
        >>> encode_images(torch.ones(2, 1, 1, 1)).data == base64.b64encode(bytes([255, 255])).decode()
        True
    """
    shown = images if images.shape[1] == 3 else images[:, :1]  # [N, c, H, W]
    pixels = shown.clamp(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()  # [N, H, W, c]
    count, height, width, channels = pixels.shape
    data = base64.b64encode(pixels.numpy().tobytes()).decode("ascii")
    return EncodedImages(count=count, width=width, height=height, channels=channels, data=data)


def tile_images(images: Tensor) -> Tensor:
    """Join a grid of images into one image.

    Args:
        images: Images by row and column.

    Shape:
        images: [rows, columns, C, H, W]; returns [1, C, rows * H, columns * W].

    Returns:
        The joined image.
    """
    rows, columns, channels, height, width = images.shape
    return images.permute(2, 0, 3, 1, 4).reshape(1, channels, rows * height, columns * width)


def fit_drawing(drawing: Tensor, image_shape: tuple[int, ...], fill: float = FILL) -> Tensor:
    """Normalise a drawing like the digits of MNIST (LeCun et al. 1998).

    The bounding box of the ink is scaled, keeping its aspect ratio, to a fraction of the image, and its centre of mass
    is moved to the middle of the image. An empty drawing stays empty.

    Args:
        drawing: The drawing in [0, 1]; 1 is ink.
        image_shape: Channels, height and width of the result.
        fill: Fraction of the image that the ink takes.

    Shape:
        drawing: [h, w]; returns [1, C, H, W].

    Returns:
        The normalised image.
    """
    channels, height, width = image_shape
    image = drawing.new_zeros(height, width)  # [H, W]
    inked = drawing > BACKGROUND  # [h, w]
    if inked.any():
        rows, columns = inked.any(dim=1).nonzero(), inked.any(dim=0).nonzero()  # [n, 1]
        digit = drawing[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
        scale = min(height, width) * fill / max(digit.shape)
        size = [max(1, round(side * scale)) for side in digit.shape]
        digit = F.interpolate(digit[None, None], size, mode="bilinear", antialias=True, align_corners=False)[0, 0]
        digit = (digit / digit.max().clamp(min=BACKGROUND)).clamp(0, 1)
        top, left = _centred_start(digit, 0, height), _centred_start(digit, 1, width)
        image[top : top + size[0], left : left + size[1]] = digit
    return image.expand(1, channels, height, width)


def _centred_start(digit: Tensor, axis: int, length: int) -> int:
    """Start index that moves the centre of mass to the middle of an axis without leaving the image."""
    weight = digit.sum(dim=1 - axis)  # [n]
    centre = float((weight * (torch.arange(len(weight)) + 0.5)).sum() / weight.sum())
    return min(max(round(length / 2 - centre), 0), length - len(weight))
