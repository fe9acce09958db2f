"""Data sets by name, folders of images, arrays in memory; whole in memory as bytes, augmented batch by batch."""

from torchcaps.data.datasets import DATASETS, SPLITS, Dataset, list_data, load_data
from torchcaps.data.digits import load_digits
from torchcaps.data.image_data import ImageData, to_float
from torchcaps.data.mnist import load_fashion_mnist, load_mnist

__all__ = [
    "DATASETS",
    "SPLITS",
    "Dataset",
    "ImageData",
    "list_data",
    "load_data",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "to_float",
]
