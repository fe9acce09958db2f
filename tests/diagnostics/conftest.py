from __future__ import annotations

import pytest
import torch

from torchcaps import create_model
from torchcaps.data import ImageDataset, load_data
from torchcaps.models import ImageModel


@pytest.fixture(scope="session")
def digits() -> ImageDataset:
    return load_data("digits", "test").subset(range(60))


@pytest.fixture(scope="session")
def model() -> ImageModel:
    torch.manual_seed(0)
    return create_model("capsnet_small").eval()


@pytest.fixture(scope="session")
def cnn() -> ImageModel:
    torch.manual_seed(0)
    return create_model("cnn_small").eval()
