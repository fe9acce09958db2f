"""Image data sets by name, from folders or from arrays: map-style datasets, batches, augmentation."""

from torchcaps.data._split import choose_per_class
from torchcaps.data._tokens import sentence_words
from torchcaps.data.affine_mnist import load_affine_mnist
from torchcaps.data.affnist import load_affnist
from torchcaps.data.arrays import load_arrays
from torchcaps.data.augment import Augment
from torchcaps.data.cifar import load_cifar10, load_cifar100
from torchcaps.data.coil20 import load_coil20
from torchcaps.data.crowded_digits import load_crowded_digits
from torchcaps.data.dataset import Batch, ImageDataset, to_float
from torchcaps.data.digit_pairs import load_digit_pairs
from torchcaps.data.digits import load_digits
from torchcaps.data.download import download_data
from torchcaps.data.dsprites import load_dsprites
from torchcaps.data.emnist import load_emnist
from torchcaps.data.eth80 import load_eth80
from torchcaps.data.faces import load_faces
from torchcaps.data.folder import FolderDataset, load_folder
from torchcaps.data.folder_files import list_images
from torchcaps.data.folds import assign_folds, load_folds
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.kmnist import load_kmnist
from torchcaps.data.loader import BatchLoader
from torchcaps.data.make_shards import make_shards
from torchcaps.data.mnist import load_fashion_mnist, load_mnist
from torchcaps.data.multimnist import load_multimnist
from torchcaps.data.overlapping_shapes import load_overlapping_shapes
from torchcaps.data.readers.image_files import read_image
from torchcaps.data.registry import DATASETS, SPLITS, DatasetEntry, list_data, load_data, register_data
from torchcaps.data.sharded import ShardedDataset, load_shards
from torchcaps.data.smallnorb import load_smallnorb
from torchcaps.data.sst2 import load_sst2
from torchcaps.data.summary import describe
from torchcaps.data.svhn import load_svhn
from torchcaps.data.transforms import CROPS_13, crop, shrink
from torchcaps.data.translated_mnist import load_translated_mnist
from torchcaps.data.trec import load_trec
from torchcaps.data.verify import FileState, verify_data

__all__ = [
    "CROPS_13",
    "DATASETS",
    "SPLITS",
    "Augment",
    "Batch",
    "BatchLoader",
    "DatasetEntry",
    "FileState",
    "FolderDataset",
    "GeneratedDataset",
    "ImageDataset",
    "InMemoryDataset",
    "ShardedDataset",
    "assign_folds",
    "choose_per_class",
    "crop",
    "describe",
    "download_data",
    "list_data",
    "list_images",
    "load_affine_mnist",
    "load_affnist",
    "load_arrays",
    "load_cifar10",
    "load_cifar100",
    "load_coil20",
    "load_crowded_digits",
    "load_data",
    "load_digit_pairs",
    "load_digits",
    "load_dsprites",
    "load_emnist",
    "load_eth80",
    "load_faces",
    "load_fashion_mnist",
    "load_folder",
    "load_folds",
    "load_kmnist",
    "load_mnist",
    "load_multimnist",
    "load_overlapping_shapes",
    "load_shards",
    "load_smallnorb",
    "load_sst2",
    "load_svhn",
    "load_translated_mnist",
    "load_trec",
    "make_shards",
    "read_image",
    "register_data",
    "sentence_words",
    "shrink",
    "to_float",
    "verify_data",
]


def __dir__() -> list[str]:
    return sorted(__all__)
