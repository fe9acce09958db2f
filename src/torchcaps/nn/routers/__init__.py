"""Routers: modules that hold the options and parameters of a routing algorithm, one file each."""

from torchcaps.nn.routers.attention import AttentionRouting
from torchcaps.nn.routers.base import LAWS, ROUTERS, Router
from torchcaps.nn.routers.controls import RandomRouting, UniformRouting
from torchcaps.nn.routers.dynamic import DynamicRouting
from torchcaps.nn.routers.em import EMRouting
from torchcaps.nn.routers.find import routing_layers
from torchcaps.nn.routers.heinsen import HeinsenRouting
from torchcaps.nn.routers.kmeans import KMeansRouting
from torchcaps.nn.routers.kuramoto import KuramotoRouting
from torchcaps.nn.routers.make import RoutingSpec, list_routers, make_router
from torchcaps.nn.routers.self_attention import SelfAttentionRouting
from torchcaps.nn.routers.self_routing import SelfRouting
from torchcaps.nn.routers.variational import VariationalRouting

__all__ = [
    "LAWS",
    "ROUTERS",
    "AttentionRouting",
    "DynamicRouting",
    "EMRouting",
    "HeinsenRouting",
    "KMeansRouting",
    "KuramotoRouting",
    "RandomRouting",
    "Router",
    "RoutingSpec",
    "SelfAttentionRouting",
    "SelfRouting",
    "UniformRouting",
    "VariationalRouting",
    "list_routers",
    "make_router",
    "routing_layers",
]
