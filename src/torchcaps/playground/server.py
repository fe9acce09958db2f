"""The server of the playground: one API router per panel, static files, and errors as JSON."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import anyio.to_thread
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

from torchcaps import __version__
from torchcaps.playground import clusters, draw, intro, pose, routing, toy
from torchcaps.playground.catalog import NetworkCatalog, NetworkDep, NetworkInfo
from torchcaps.playground.measures import ReconstructionQuality, reconstruction_quality
from torchcaps.playground.network import PlaygroundNetwork
from torchcaps.serving.errors import ERROR_RESPONSES, add_error_handlers
from torchcaps.serving.middleware import LOOPBACK, RequestLimits, SecurityMiddleware
from torchcaps.serving.server import run

STATIC = Path(__file__).parent / "static"
# Computations and file reads together: with more threads each would only become slower.
WORKER_THREADS = 2
# In the order of the tabs. A module with endpoints has a `router`; a panel that not every network supports has
# `unavailable_reason(network)`.
PANELS: dict[str, ModuleType] = {
    "intro": intro,
    "toy": toy,
    "draw": draw,
    "pose": pose,
    "routing": routing,
    "clusters": clusters,
}


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
        networks: All networks that the page can switch to.
        about: One line about the network.
        limitations: Known limitations of the network, in sentences.
        classes: Names of the classes.
        labels: Classes per image; a network for two digits has 2.
        digits: Whether the classes are the ten digits.
        image_shape: Channels, height and width.
        samples: Number of sample images.
        ink: Whether the images are strokes, shown as ink on paper.
        decoder: Whether the network has a decoder.
        reconstruction: Error of the decoder beside that of the mean image; None where it is not measured.
        calibrated: Whether the training fitted a temperature for the probabilities.
        panels: The tabs.
        limits: Ranges and limits of the panels.
    """

    version: str
    network: str
    networks: list[NetworkInfo]
    about: str
    limitations: list[str]
    classes: list[str]
    labels: int
    digits: bool
    image_shape: tuple[int, int, int]
    samples: int
    ink: bool
    decoder: bool
    reconstruction: ReconstructionQuality | None
    calibrated: bool
    panels: list[PanelInfo]
    limits: PanelLimits


def create_app(
    network: PlaygroundNetwork,
    *,
    host: str = "127.0.0.1",
    limits: RequestLimits | None = None,
    token: str | None = None,
) -> FastAPI:
    """Create the playground of a network.

    Args:
        network: The network that is shown first. The page can switch to the pretrained ones.
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
    app.state.catalog = NetworkCatalog(network)
    app.add_middleware(SecurityMiddleware, hosts=(*LOOPBACK, host), limits=limits, token=token)
    add_error_handlers(app)
    for name, module in PANELS.items():
        if hasattr(module, "router"):
            app.include_router(module.router, prefix=f"/api/{name}", tags=[name], responses=ERROR_RESPONSES)

    @app.get("/api/info", responses=ERROR_RESPONSES)
    def info(chosen: NetworkDep) -> InfoResponse:
        """The network and the panels."""
        return _info(chosen, app.state.catalog)

    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


def _info(network: PlaygroundNetwork, catalog: NetworkCatalog) -> InfoResponse:
    channels, height, width = network.model.image_shape
    return InfoResponse(
        version=__version__,
        network=network.name,
        networks=catalog.infos,
        about=network.about,
        limitations=list(network.limits),
        classes=list(network.class_names),
        labels=network.labels,
        digits=tuple(network.class_names) == tuple("0123456789"),
        image_shape=(channels, height, width),
        samples=len(network.samples),
        ink=network.has_ink,
        decoder=network.model.decoder is not None,
        reconstruction=reconstruction_quality(network),
        calibrated=network.model.temperature is not None,
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
