"""Modules that hold parameters and call ops: capsule layers, routers, decoders, losses."""

from torchcaps.nn.agreement_routers import AttentionRouting, KMeansRouting, SelfAttentionRouting
from torchcaps.nn.answers import answers, right_answers
from torchcaps.nn.class_caps import ClassCaps
from torchcaps.nn.control_routers import RandomRouting, UniformRouting
from torchcaps.nn.conv import CapsConv2d
from torchcaps.nn.decoders import DECODERS, DeconvDecoder, MLPDecoder
from torchcaps.nn.em_router import EMRouting
from torchcaps.nn.kuramoto_conv import KuramotoConv2d, KuramotoReadout
from torchcaps.nn.kuramoto_router import KuramotoRouting
from torchcaps.nn.linear import CapsLinear
from torchcaps.nn.losses import LOSSES, CrossEntropyLoss, LikelihoodLoss, MarginLoss, ReconstructionLoss
from torchcaps.nn.masking import mask_capsules
from torchcaps.nn.primary import PrimaryCaps2d
from torchcaps.nn.primary_matrix import PrimaryMatrixCaps2d
from torchcaps.nn.routers import ROUTERS, DynamicRouting, Router, list_routers, make_router
from torchcaps.nn.self_router import SelfRouting
from torchcaps.nn.spread_loss import SpreadLoss
from torchcaps.nn.standardise import Standardise
from torchcaps.nn.variational_router import VariationalRouting

__all__ = [
    "DECODERS",
    "LOSSES",
    "ROUTERS",
    "AttentionRouting",
    "CapsConv2d",
    "CapsLinear",
    "ClassCaps",
    "CrossEntropyLoss",
    "DeconvDecoder",
    "DynamicRouting",
    "EMRouting",
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
    "SelfAttentionRouting",
    "SelfRouting",
    "SpreadLoss",
    "Standardise",
    "UniformRouting",
    "VariationalRouting",
    "answers",
    "list_routers",
    "make_router",
    "mask_capsules",
    "right_answers",
]
