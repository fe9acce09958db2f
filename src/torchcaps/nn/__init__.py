"""Modules that hold parameters and call ops: capsule layers, routers, decoders, losses."""

from torchcaps.nn.decoders import DECODERS, DeconvDecoder, MLPDecoder
from torchcaps.nn.linear import CapsLinear
from torchcaps.nn.losses import LOSSES, CrossEntropyLoss, MarginLoss, ReconstructionLoss
from torchcaps.nn.masking import mask_capsules
from torchcaps.nn.primary import PrimaryCaps2d
from torchcaps.nn.routers import ROUTERS, DynamicRouting, Router, make_router

__all__ = [
    "DECODERS",
    "LOSSES",
    "ROUTERS",
    "CapsLinear",
    "CrossEntropyLoss",
    "DeconvDecoder",
    "DynamicRouting",
    "MLPDecoder",
    "MarginLoss",
    "PrimaryCaps2d",
    "ReconstructionLoss",
    "Router",
    "make_router",
    "mask_capsules",
]
