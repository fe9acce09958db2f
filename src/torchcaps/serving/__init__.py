"""The web servers of torchcaps: the prediction server, and the request checks, limits and sockets of all servers.

Needs the extra `play`.
"""

from torchcaps.serving.app import ServeLimits, create_server_app
from torchcaps.serving.batcher import Batcher
from torchcaps.serving.classifier import CheckedPrediction, Classifier
from torchcaps.serving.listener import address_of, is_loopback, listen
from torchcaps.serving.middleware import RateLimiter, RequestLimits, SecurityMiddleware
from torchcaps.serving.predictions import PredictRequest, PredictResponse
from torchcaps.serving.server import GracefulServer, ServerLimits, make_server, run

__all__ = [
    "Batcher",
    "CheckedPrediction",
    "Classifier",
    "GracefulServer",
    "PredictRequest",
    "PredictResponse",
    "RateLimiter",
    "RequestLimits",
    "SecurityMiddleware",
    "ServeLimits",
    "ServerLimits",
    "address_of",
    "create_server_app",
    "is_loopback",
    "listen",
    "make_server",
    "run",
]
