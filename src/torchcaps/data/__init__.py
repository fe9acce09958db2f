"""Data sets by name, folders of images, arrays in memory; whole in memory as bytes, augmented batch by batch."""

from torchcaps.data.affine_mnist import load_affine_mnist
from torchcaps.data.affnist import load_affnist
from torchcaps.data.augment import Augment
from torchcaps.data.check import FileState, check_data
from torchcaps.data.cifar import load_cifar10, load_cifar100
from torchcaps.data.datasets import DATASETS, SPLITS, Dataset, list_data, load_data
from torchcaps.data.digit_pairs import load_digit_pairs
from torchcaps.data.digits import load_digits
from torchcaps.data.drawn import DrawnData
from torchcaps.data.emnist import load_emnist
from torchcaps.data.fetch import fetch_data
from torchcaps.data.folder import load_folder
from torchcaps.data.handed_in import hand_in
from torchcaps.data.image_data import Batch, ImageData, to_float
from torchcaps.data.image_files import read_image
from torchcaps.data.kmnist import load_kmnist
from torchcaps.data.loader import BatchLoader
from torchcaps.data.make_shards import make_shards
from torchcaps.data.mnist import load_fashion_mnist, load_mnist
from torchcaps.data.multimnist import load_multimnist
from torchcaps.data.shards import ShardData, load_shards
from torchcaps.data.smallnorb import load_smallnorb
from torchcaps.data.summary import describe
from torchcaps.data.svhn import load_svhn
from torchcaps.data.transforms import CROPS_13, crop, shrink
from torchcaps.data.translated_mnist import load_translated_mnist

__all__ = [
    "CROPS_13",
    "DATASETS",
    "SPLITS",
    "Augment",
    "Batch",
    "BatchLoader",
    "Dataset",
    "DrawnData",
    "FileState",
    "ImageData",
    "ShardData",
    "check_data",
    "crop",
    "describe",
    "fetch_data",
    "hand_in",
    "list_data",
    "load_affine_mnist",
    "load_affnist",
    "load_cifar10",
    "load_cifar100",
    "load_data",
    "load_digit_pairs",
    "load_digits",
    "load_emnist",
    "load_fashion_mnist",
    "load_folder",
    "load_kmnist",
    "load_mnist",
    "load_multimnist",
    "load_shards",
    "load_smallnorb",
    "load_svhn",
    "load_translated_mnist",
    "make_shards",
    "read_image",
    "shrink",
    "to_float",
]
