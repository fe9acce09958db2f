"""The server of the playground: one API router per panel, static files, and errors as JSON."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from torchcaps import __version__
from torchcaps.errors import TorchcapsError
from torchcaps.playground import clusters, draw, pose, routing, toy
from torchcaps.playground.network import PlaygroundNetwork
from torchcaps.serving.middleware import LOOPBACK, RequestLimits, SecurityMiddleware, error_response
from torchcaps.serving.server import run

STATIC = Path(__file__).parent / "static"
# Computations and file reads together: with more threads each would only become slower.
WORKER_THREADS = 2
MAX_ERROR = 600
# In the order of the tabs. Each module has a `router`; a panel that not every network supports has
# `unavailable_reason(network)`.
PANELS: dict[str, ModuleType] = {"draw": draw, "pose": pose, "routing": routing, "toy": toy, "clusters": clusters}


class PanelInfo(BaseModel):
    """A tab of the page, and the reason why it cannot show this network."""

    id: str
    unavailable_reason: str | None


class PanelLimits(BaseModel):
    """Ranges and limits of the panels, for the controls of the page."""

    pose: pose.PoseLimits
    routing: routing.RoutingLimits
    toy: toy.ToyLimits
    clusters: clusters.ClusterLimits


class InfoResponse(BaseModel):
    """The network, its classes and samples, and the panels.

    Attributes:
        version: Version of torchcaps.
        network: Name of the network.
        about: One line about the network.
        classes: Names of the classes.
        image_shape: Channels, height and width.
        samples: Number of sample images.
        ink: Whether the images are strokes, shown as ink on paper.
        decoder: Whether the network has a decoder.
        panels: The tabs.
        limits: Ranges and limits of the panels.
    """

    version: str
    network: str
    about: str
    classes: list[str]
    image_shape: tuple[int, int, int]
    samples: int
    ink: bool
    decoder: bool
    panels: list[PanelInfo]
    limits: PanelLimits


class ErrorResponse(BaseModel):
    """The body of every failed request."""

    error: str
    request_id: str


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        400: "a value that the network does not support",
        401: "no valid token",
        403: "another origin or host",
        405: "another method",
        408: "a body that is too slow",
        413: "a body that is too large",
        415: "a body that is not JSON",
        422: "a body that does not match the schema",
        429: "too many requests per second",
        503: "too many requests in progress",
    }.items()
}


def create_app(
    network: PlaygroundNetwork,
    *,
    host: str = "127.0.0.1",
    limits: RequestLimits | None = None,
    token: str | None = None,
) -> FastAPI:
    """Create the playground of a network.

    Args:
        network: The network.
        host: Name under which the server is reached, beside those of the loopback interface.
        limits: Limits on requests.
        token: Secret that every request must carry; None on the loopback interface.

    Returns:
        An ASGI application.

    Example:
        >>> app = create_app(open_network())  # doctest: +SKIP
    """
    # Swagger UI and ReDoc would load scripts from other hosts.
    app = FastAPI(
        title="torchcaps playground",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=_lifespan,
    )
    app.state.network = network
    app.add_middleware(SecurityMiddleware, hosts=(*LOOPBACK, host), limits=limits, token=token)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(TorchcapsError, _torchcaps_error)
    for name, module in PANELS.items():
        app.include_router(module.router, prefix=f"/api/{name}", tags=[name], responses=_ERRORS)

    @app.get("/api/info", responses=_ERRORS)
    def info() -> InfoResponse:
        """The network and the panels."""
        return _info(network)

    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


def _info(network: PlaygroundNetwork) -> InfoResponse:
    channels, height, width = network.model.image_shape
    return InfoResponse(
        version=__version__,
        network=network.name,
        about=network.about,
        classes=list(network.class_names),
        image_shape=(channels, height, width),
        samples=len(network.samples),
        ink=network.has_ink,
        decoder=network.model.decoder is not None,
        panels=[
            PanelInfo(id=name, unavailable_reason=_unavailable_reason(module, network))
            for name, module in PANELS.items()
        ],
        limits=PanelLimits(pose=pose.LIMITS, routing=routing.LIMITS, toy=toy.LIMITS, clusters=clusters.LIMITS),
    )


def _unavailable_reason(module: ModuleType, network: PlaygroundNetwork) -> str | None:
    check: Callable[[PlaygroundNetwork], str | None] | None = getattr(module, "unavailable_reason", None)
    return None if check is None else check(network)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = WORKER_THREADS
    yield


def _validation_error(request: Request, error: Exception) -> JSONResponse:
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    sentences = [_describe(problem) for problem in problems]
    more = f"; and {len(sentences) - 3} more" if len(sentences) > 3 else ""
    return error_response("; ".join(sentences[:3])[:MAX_ERROR] + more, 422, request.state.request_id)


def _describe(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return "body: expected JSON"
    return f"{'.'.join(map(str, problem['loc'][1:])) or 'body'}: {problem['msg']}"


def _http_error(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 400
    message = str(getattr(error, "detail", error))
    headers = {name.lower(): value for name, value in (getattr(error, "headers", None) or {}).items()}
    allowed = _allowed_methods(request)
    # The static files match every path: they answer 404 or 405 also for a route of the API with another method.
    if status in (404, 405) and request.method not in allowed:
        status, headers["allow"] = 405, ", ".join(allowed)
        message = f"method: expected {' or '.join(allowed)}, got {request.method}"
    elif status == 404:
        message = "not found: there is no page or endpoint at this address"
    return error_response(message, status, request.state.request_id, headers)


def _allowed_methods(request: Request) -> list[str]:
    """Methods of the API route at the path of a request, or those of static files."""
    methods = request.app.openapi()["paths"].get(request.url.path, ("get", "head"))
    return sorted(method.upper() for method in methods)


def _torchcaps_error(request: Request, error: Exception) -> JSONResponse:
    return error_response(str(error)[:MAX_ERROR], 400, request.state.request_id)


def serve(app: FastAPI, listener: socket.socket, *, open_at: str | None = None) -> None:
    """Serve an app until Ctrl-C or SIGTERM.

    Args:
        app: The app.
        listener: The listening socket.
        open_at: Address to open in the browser; None opens no browser.

    Example:
        >>> serve(create_app(open_network()), listen("127.0.0.1", 8017))  # doctest: +SKIP
    """
    if open_at is not None:
        # The socket listens already: an early request waits in its queue.
        threading.Thread(target=webbrowser.open, args=(open_at,), daemon=True).start()
    run(app, listener)
