"""Modules that hold parameters and call ops: capsule layers, routers, decoders, losses."""

from torchcaps.nn.conv import CapsConv2d, ClassCaps
from torchcaps.nn.decoders import DECODERS, DeconvDecoder, MLPDecoder
from torchcaps.nn.head import CapsHead, FeatureCaps
from torchcaps.nn.kuramoto_conv import KuramotoConv2d, KuramotoReadout
from torchcaps.nn.linear import CapsLinear
from torchcaps.nn.losses import LOSSES, CrossEntropyLoss, LikelihoodLoss, MarginLoss, ReconstructionLoss
from torchcaps.nn.masking import mask_capsules
from torchcaps.nn.primary import PrimaryCaps2d
from torchcaps.nn.primary_matrix import PrimaryMatrixCaps2d
from torchcaps.nn.routers import (
    ROUTERS,
    AttentionRouting,
    DynamicRouting,
    EMRouting,
    KMeansRouting,
    KuramotoRouting,
    RandomRouting,
    Router,
    RoutingSpec,
    SelfAttentionRouting,
    SelfRouting,
    UniformRouting,
    VariationalRouting,
    list_routers,
    make_router,
    routing_layers,
)
from torchcaps.nn.scores import ScoreKind, Scores, log_probabilities
from torchcaps.nn.spread_loss import SpreadLoss
from torchcaps.nn.standardize import InstanceStandardize

__all__ = [
    "DECODERS",
    "LOSSES",
    "ROUTERS",
    "AttentionRouting",
    "CapsConv2d",
    "CapsHead",
    "CapsLinear",
    "ClassCaps",
    "CrossEntropyLoss",
    "DeconvDecoder",
    "DynamicRouting",
    "EMRouting",
    "FeatureCaps",
    "InstanceStandardize",
    "KMeansRouting",
    "KuramotoConv2d",
    "KuramotoReadout",
    "KuramotoRouting",
    "LikelihoodLoss",
    "MLPDecoder",
    "MarginLoss",
    "PrimaryCaps2d",
    "PrimaryMatrixCaps2d",
    "RandomRouting",
    "ReconstructionLoss",
    "Router",
    "RoutingSpec",
    "ScoreKind",
    "Scores",
    "SelfAttentionRouting",
    "SelfRouting",
    "SpreadLoss",
    "UniformRouting",
    "VariationalRouting",
    "list_routers",
    "log_probabilities",
    "make_router",
    "mask_capsules",
    "routing_layers",
]
