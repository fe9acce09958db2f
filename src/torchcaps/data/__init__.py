"""Data sets by name, folders of images, arrays in memory; whole in memory as bytes, augmented batch by batch."""

from torchcaps.data.augment import Augment
from torchcaps.data.datasets import DATASETS, SPLITS, Dataset, list_data, load_data
from torchcaps.data.digits import load_digits
from torchcaps.data.folder import load_folder
from torchcaps.data.image_data import ImageData, to_float
from torchcaps.data.image_files import read_image
from torchcaps.data.loader import BatchLoader
from torchcaps.data.mnist import load_fashion_mnist, load_mnist
from torchcaps.data.smallnorb import load_smallnorb
from torchcaps.data.summary import describe
from torchcaps.data.transforms import CROPS_13, crop, shrink

__all__ = [
    "CROPS_13",
    "DATASETS",
    "SPLITS",
    "Augment",
    "BatchLoader",
    "Dataset",
    "ImageData",
    "crop",
    "describe",
    "list_data",
    "load_data",
    "load_digits",
    "load_fashion_mnist",
    "load_folder",
    "load_mnist",
    "load_smallnorb",
    "read_image",
    "shrink",
    "to_float",
]
