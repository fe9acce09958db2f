"""Networks by name: one family per file."""

from torchcaps.models._base import MODELS, ImageModel, create_model, list_models, register_model
from torchcaps.models.attention_capsnet import AttentionCapsNet
from torchcaps.models.branched_capsnet import BranchedCapsNet
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.cnn import CNN
from torchcaps.models.deep_capsnet import DeepCapsNet
from torchcaps.models.efficient_capsnet import EfficientCapsNet
from torchcaps.models.kmeans_capsnet import KMeansCapsNet
from torchcaps.models.kuramoto_net import KuramotoNet
from torchcaps.models.matrix_capsnet import MatrixCapsNet
from torchcaps.models.pretrained import Card, list_pretrained, pretrained_card
from torchcaps.models.transforming_autoencoder import TransformingAutoencoder

__all__ = [
    "CNN",
    "MODELS",
    "AttentionCapsNet",
    "BranchedCapsNet",
    "CapsNet",
    "Card",
    "DeepCapsNet",
    "EfficientCapsNet",
    "ImageModel",
    "KMeansCapsNet",
    "KuramotoNet",
    "MatrixCapsNet",
    "TransformingAutoencoder",
    "create_model",
    "list_models",
    "list_pretrained",
    "pretrained_card",
    "register_model",
]
