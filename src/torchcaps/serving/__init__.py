"""The base of all web servers of torchcaps: request checks, limits, sockets. Needs the extra `play`."""

from torchcaps.serving.listener import address_of, is_loopback, listen
from torchcaps.serving.middleware import RateLimiter, RequestLimits, SecurityMiddleware
from torchcaps.serving.server import GracefulServer, ServerLimits, make_server, run

__all__ = [
    "GracefulServer",
    "RateLimiter",
    "RequestLimits",
    "SecurityMiddleware",
    "ServerLimits",
    "address_of",
    "is_loopback",
    "listen",
    "make_server",
    "run",
]
