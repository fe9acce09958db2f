import subprocess
import sys

import pytest
import torch

import torchcaps as tc
from torchcaps.data import DATASETS, SPLITS
from torchcaps.errors import ConfigError, UnknownNameError


def test_top_level_names():
    assert tc.list_data("digit*") == ["digit_pairs", "digits"]
    assert len(tc.load_data("digits", "val")) == 500


def test_train_is_the_default():
    assert tc.load_data("digits").split == "train"


@pytest.mark.parametrize("name", DATASETS.names())
def test_every_entry_says_what_it_is(name):
    entry = DATASETS[name]
    assert entry.description
    assert entry.source
    assert entry.licence
    assert "\n" not in entry.description
    assert set(SPLITS) <= set(entry.splits)


def test_unknown_name():
    with pytest.raises(UnknownNameError, match=r"unknown data set 'mnits'; did you mean 'mnist'\?"):
        tc.load_data("mnits")


def test_unknown_split():
    with pytest.raises(UnknownNameError, match=r"unknown split 'tets' of data set 'digits'; did you mean 'test'\?"):
        tc.load_data("digits", "tets")


def test_unknown_option():
    with pytest.raises(ConfigError, match=r"unknown option 'val_sise' of data set 'mnist'; did you mean 'val_size'\?"):
        tc.load_data("mnist", val_sise=3)


def test_the_split_is_no_option():
    assert "split" not in DATASETS["mnist"].options


def test_missing_option():
    with pytest.raises(ConfigError, match="path: expected a value for data set 'folder', got none"):
        tc.load_data("folder")


def test_every_load_gives_the_same():
    first, second = tc.load_data("digits", "val"), tc.load_data("digits", "val")
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)


def test_data_does_not_import_what_is_slow():
    code = "import sys, torchcaps.data; print({'lightning', 'matplotlib', 'scipy'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
