"""Models: one family per file, and a registry of their names."""

from torchcaps.models._backbones import BACKBONES
from torchcaps.models._base import Grid, ImageModel
from torchcaps.models._create import MODELS, create_model, list_models, model_rank, register_model
from torchcaps.models._describe import ModelDescription, load_described, read_description
from torchcaps.models._weights import check_weights, load_weights, save_weights
from torchcaps.models.attention_capsnet import AttentionCapsNet
from torchcaps.models.backbone_capsnet import BackboneCapsNet, BackboneLinear
from torchcaps.models.branched_capsnet import BranchedCapsNet
from torchcaps.models.capsnet import CapsNet
from torchcaps.models.cnn import CNN
from torchcaps.models.deep_capsnet import DeepCapsNet
from torchcaps.models.efficient_capsnet import EfficientCapsNet
from torchcaps.models.kmeans_capsnet import KMeansCapsNet
from torchcaps.models.kuramoto_net import KuramotoNet
from torchcaps.models.matched_cnn import MatchedCNN
from torchcaps.models.matrix_capsnet import MatrixCapsNet
from torchcaps.models.pretrained import ModelCard, list_pretrained, pretrained_card
from torchcaps.models.released_matrix_capsnet import ReleasedMatrixCapsNet
from torchcaps.models.shared_capsnet import SharedCapsNet
from torchcaps.models.stacked_capsnet import StackedCapsNet
from torchcaps.models.synchrony_nets import SynchronyNet
from torchcaps.models.token_classifier import TokenCapsNet, TokenScores
from torchcaps.models.transforming_autoencoder import TransformingAutoencoder

__all__ = [
    "BACKBONES",
    "CNN",
    "MODELS",
    "AttentionCapsNet",
    "BackboneCapsNet",
    "BackboneLinear",
    "BranchedCapsNet",
    "CapsNet",
    "DeepCapsNet",
    "EfficientCapsNet",
    "Grid",
    "ImageModel",
    "KMeansCapsNet",
    "KuramotoNet",
    "MatchedCNN",
    "MatrixCapsNet",
    "ModelCard",
    "ModelDescription",
    "ReleasedMatrixCapsNet",
    "SharedCapsNet",
    "StackedCapsNet",
    "SynchronyNet",
    "TokenCapsNet",
    "TokenScores",
    "TransformingAutoencoder",
    "check_weights",
    "create_model",
    "list_models",
    "list_pretrained",
    "load_described",
    "load_weights",
    "model_rank",
    "pretrained_card",
    "read_description",
    "register_model",
    "save_weights",
]
