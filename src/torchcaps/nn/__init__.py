"""Modules that hold parameters and call ops: capsule layers, routers, decoders, losses."""

from torchcaps.nn.complex_conv import ComplexConv2d, ModulusReLU
from torchcaps.nn.conv import CapsConv1d, CapsConv2d, CapsConv3d, ClassCaps
from torchcaps.nn.decoders import DECODERS, DeconvDecoder, MLPDecoder
from torchcaps.nn.decoupled_conv import DecoupledConv2d
from torchcaps.nn.head import CapsHead, FeatureCaps
from torchcaps.nn.kuramoto_conv import KuramotoConv2d, KuramotoReadout
from torchcaps.nn.lazy import LazyCapsLinear
from torchcaps.nn.linear import CapsLinear
from torchcaps.nn.losses import LOSSES, CrossEntropyLoss, LikelihoodLoss, MarginLoss, ReconstructionLoss
from torchcaps.nn.masking import mask_capsules
from torchcaps.nn.primary import PrimaryCaps1d, PrimaryCaps2d, PrimaryCaps3d
from torchcaps.nn.primary_matrix import PrimaryMatrixCaps1d, PrimaryMatrixCaps2d, PrimaryMatrixCaps3d
from torchcaps.nn.routers import (
    ROUTERS,
    AttentionRouting,
    DynamicRouting,
    EMRouting,
    HeinsenRouting,
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
from torchcaps.nn.shards import shard_parents
from torchcaps.nn.spread_loss import SpreadLoss
from torchcaps.nn.standardize import InstanceStandardize

__all__ = [
    "DECODERS",
    "LOSSES",
    "ROUTERS",
    "AttentionRouting",
    "CapsConv1d",
    "CapsConv2d",
    "CapsConv3d",
    "CapsHead",
    "CapsLinear",
    "ClassCaps",
    "ComplexConv2d",
    "CrossEntropyLoss",
    "DeconvDecoder",
    "DecoupledConv2d",
    "DynamicRouting",
    "EMRouting",
    "FeatureCaps",
    "HeinsenRouting",
    "InstanceStandardize",
    "KMeansRouting",
    "KuramotoConv2d",
    "KuramotoReadout",
    "KuramotoRouting",
    "LazyCapsLinear",
    "LikelihoodLoss",
    "MLPDecoder",
    "MarginLoss",
    "ModulusReLU",
    "PrimaryCaps1d",
    "PrimaryCaps2d",
    "PrimaryCaps3d",
    "PrimaryMatrixCaps1d",
    "PrimaryMatrixCaps2d",
    "PrimaryMatrixCaps3d",
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
    "shard_parents",
]
