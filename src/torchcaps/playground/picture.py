"""Pictures on their way between page and network: bytes in base64, and drawings made to look like the data's digits."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn import functional as F

SIDE = 256  # the most that a picture may measure
FAINT = 0.05  # below this a pixel of a drawing is paper


class Request(BaseModel):
    """A body that has nothing in it that is not known."""

    model_config = ConfigDict(extra="forbid")


class Picture(Request):
    """A grey picture from the page, row by row: 0 is paper, 255 is ink; `pixels` are its bytes in base64."""

    width: int = Field(ge=1, le=SIDE)
    height: int = Field(ge=1, le=SIDE)
    pixels: str = Field(max_length=4 * ((SIDE * SIDE + 2) // 3), json_schema_extra={"contentEncoding": "base64"})

    @model_validator(mode="after")
    def _whole(self) -> Self:
        try:
            count = len(base64.b64decode(self.pixels, validate=True))
        except (binascii.Error, ValueError):
            raise ValueError("pixels: expected base64") from None
        if count != self.width * self.height:
            raise ValueError(f"pixels: expected {self.width * self.height} bytes, got {count}")
        return self

    def tensor(self) -> Tensor:
        """The picture as floats in [0, 1], [H, W]."""
        grey = np.frombuffer(base64.b64decode(self.pixels), np.uint8).reshape(self.height, self.width)
        return torch.from_numpy(grey.astype(np.float32) / 255)


class Source(Request):
    """What the network is to look at: an image of the data by its number, perhaps a second over it; or a drawing."""

    sample: Annotated[int, Field(ge=0, le=100_000)] | None = None
    second: Annotated[int, Field(ge=0, le=100_000)] | None = None
    drawing: Picture | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.sample is None) == (self.drawing is None):
            raise ValueError("expected either a sample or a drawing")
        if self.second is not None and self.sample is None:
            raise ValueError("second: expected a sample that it lies over")
        return self


class Images(BaseModel):
    """Images of one size for the page, one after the other: bytes in base64, [count, height, width, channels]."""

    count: int
    width: int
    height: int
    channels: int
    data: str


def encode(images: Tensor) -> Images:
    """Images [N, C, H, W] in [0, 1] as bytes; of channels that are no colours only the first is shown.

    >>> encode(torch.ones(2, 1, 1, 1)).data == base64.b64encode(bytes([255, 255])).decode()
    True
    """
    shown = images if images.shape[1] == 3 else images[:, :1]  # [N, c, H, W]
    pixels = shown.clamp(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()  # [N, H, W, c]
    count, height, width, channels = pixels.shape
    data = base64.b64encode(pixels.numpy().tobytes()).decode("ascii")
    return Images(count=count, width=width, height=height, channels=channels, data=data)


def sheet(images: Tensor) -> Tensor:
    """Rows and columns of images as one: [rows, columns, C, H, W] give [1, C, rows*H, columns*W]."""
    rows, columns, channels, height, width = images.shape
    return images.permute(2, 0, 3, 1, 4).reshape(1, channels, rows * height, columns * width)


def fit(drawing: Tensor, image_shape: tuple[int, int, int]) -> Tensor:
    """A drawing [h, w] as the data set's digits are: [1, C, H, W].

    What is drawn is scaled, sides in proportion, so that it fills 20 of 28 pixels, and put with its centre of mass in
    the middle (LeCun et al. 1998, how MNIST was made). An empty drawing stays empty.
    """
    channels, height, width = image_shape
    image = drawing.new_zeros(height, width)  # [H, W]
    inked = drawing > FAINT  # [h, w]
    if inked.any():
        rows, columns = inked.any(dim=1).nonzero(), inked.any(dim=0).nonzero()  # [n, 1]
        digit = drawing[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
        scale = min(height, width) * 20 / 28 / max(digit.shape)
        size = [max(1, round(side * scale)) for side in digit.shape]
        digit = F.interpolate(digit[None, None], size, mode="bilinear", antialias=True, align_corners=False)[0, 0]
        digit = (digit / digit.max().clamp(min=FAINT)).clamp(0, 1)
        top, left = _place(digit, 0, height), _place(digit, 1, width)
        image[top : top + size[0], left : left + size[1]] = digit
    return image.expand(1, channels, height, width)


def _place(digit: Tensor, axis: int, room: int) -> int:
    """Where a digit begins so that its centre of mass is in the middle, without leaving the image."""
    weight = digit.sum(dim=1 - axis)  # [n]
    centre = float((weight * (torch.arange(len(weight)) + 0.5)).sum() / weight.sum())
    return min(max(round(room / 2 - centre), 0), room - len(weight))
