"""Networks by name: one family per file."""

from torchcaps.models._base import MODELS, ImageModel, create_model, list_models, register_model
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.cnn import CNN
from torchcaps.models.matrix_capsnet import MatrixCapsNet

__all__ = ["CNN", "MODELS", "CapsNet", "ImageModel", "MatrixCapsNet", "create_model", "list_models", "register_model"]
