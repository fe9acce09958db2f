"""Data sets by name, folders of images, arrays in memory; whole in memory as bytes, augmented batch by batch."""

from torchcaps.data.affnist import load_affnist
from torchcaps.data.augment import Augment
from torchcaps.data.check import FileState, check_data
from torchcaps.data.cifar import load_cifar10, load_cifar100
from torchcaps.data.datasets import DATASETS, SPLITS, Dataset, list_data, load_data
from torchcaps.data.digits import load_digits
from torchcaps.data.emnist import load_emnist
from torchcaps.data.fetch import fetch_data
from torchcaps.data.folder import load_folder
from torchcaps.data.handed_in import hand_in
from torchcaps.data.image_data import ImageData, to_float
from torchcaps.data.image_files import read_image
from torchcaps.data.kmnist import load_kmnist
from torchcaps.data.loader import BatchLoader
from torchcaps.data.mnist import load_fashion_mnist, load_mnist
from torchcaps.data.smallnorb import load_smallnorb
from torchcaps.data.summary import describe
from torchcaps.data.svhn import load_svhn
from torchcaps.data.transforms import CROPS_13, crop, shrink

__all__ = [
    "CROPS_13",
    "DATASETS",
    "SPLITS",
    "Augment",
    "BatchLoader",
    "Dataset",
    "FileState",
    "ImageData",
    "check_data",
    "crop",
    "describe",
    "fetch_data",
    "hand_in",
    "list_data",
    "load_affnist",
    "load_cifar10",
    "load_cifar100",
    "load_data",
    "load_digits",
    "load_emnist",
    "load_fashion_mnist",
    "load_folder",
    "load_kmnist",
    "load_mnist",
    "load_smallnorb",
    "load_svhn",
    "read_image",
    "shrink",
    "to_float",
]
