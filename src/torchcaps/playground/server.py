"""The server of the playground: panels as API routes, a page of plain files, and words when something is wrong."""

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
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from torchcaps import __version__
from torchcaps.errors import ConfigError, TorchcapsError
from torchcaps.playground import clusters, draw, pose, routing, toy
from torchcaps.playground.guard import LOOPBACK, Guard, Limits
from torchcaps.playground.network import Network

STATIC = Path(__file__).parent / "static"
# Seconds; whoever asks lets go of an idle connection before: Chromium after 300, Firefox after 115, httpx after 5.
KEEP_ALIVE = 330
# In the order of the tabs. Each module has a `router`; where it needs something of the network, `lacking(network)` says
# what is missing, in a sentence.
PANELS: dict[str, ModuleType] = {"draw": draw, "pose": pose, "routing": routing, "toy": toy, "clusters": clusters}


class Panel(BaseModel):
    """A tab of the page; `lacking` says why it has nothing to show for this network."""

    id: str
    lacking: str | None


class Info(BaseModel):
    """What the page needs to know before anything is asked."""

    version: str
    network: str
    about: str
    classes: list[str]
    image_shape: tuple[int, int, int]
    samples: int
    ink: bool
    decoder: bool
    panels: list[Panel]


def create_app(network: Network, *, host: str = "127.0.0.1", limits: Limits | None = None) -> FastAPI:
    """The playground of a network as an ASGI app that answers to `host` and to the loopback's names."""

    # Schema pages would fetch their scripts from elsewhere; the schema itself stays.
    app = FastAPI(
        title="torchcaps playground",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=_lifespan,
    )
    app.state.network = network
    app.add_middleware(Guard, hosts=(*LOOPBACK, host), limits=limits)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(TorchcapsError, _mistake)
    for name, module in PANELS.items():
        app.include_router(module.router, prefix=f"/api/{name}", tags=[name], responses=_ERRORS)

    @app.get("/api/info")
    def info() -> Info:
        """What is being played with."""
        channels, height, width = network.model.image_shape
        return Info(
            version=__version__,
            network=network.name,
            about=network.about,
            classes=list(network.class_names),
            image_shape=(channels, height, width),
            samples=len(network.samples),
            ink=network.ink,
            decoder=network.model.decoder is not None,
            panels=[Panel(id=name, lacking=_lacking(module, network)) for name, module in PANELS.items()],
        )

    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


class Trouble(BaseModel):
    """What is said when something cannot be answered."""

    error: str


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Trouble, "description": words}
    for status, words in {
        400: "what was asked for cannot be done",
        403: "a foreign origin or host",
        413: "a body that is too large",
        415: "a body that is not JSON",
        422: "a body that is not as the schema says",
        429: "too many requests",
        503: "too many requests are waiting",
    }.items()
}


def _lacking(module: ModuleType, network: Network) -> str | None:
    check: Callable[[Network], str | None] | None = getattr(module, "lacking", None)
    return None if check is None else check(network)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    # One computation at a time and one file beside it: more would only make each other slow.
    anyio.to_thread.current_default_thread_limiter().total_tokens = 2
    yield


def _invalid(request: Request, error: Exception) -> JSONResponse:
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    words = [_words(problem) for problem in problems]
    # A long list is cut: the first mistakes are enough to go on.
    more = f"; and {len(words) - 3} more" if len(words) > 3 else ""
    return JSONResponse({"error": "; ".join(words[:3])[:600] + more}, 422)


def _words(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return "body: expected JSON"
    return f"{'.'.join(map(str, problem['loc'][1:])) or 'body'}: {problem['msg']}"


def _refused(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 400
    # The files are looked through for what no route takes; a route that takes another method is none of them.
    if status == 404 and request.url.path in request.app.openapi()["paths"]:
        status = 405
    words = {404: "there is nothing at this address", 405: "this address is asked in another way"}
    sentence = words.get(status, str(getattr(error, "detail", error)))
    return JSONResponse({"error": sentence}, status, getattr(error, "headers", None))


def _mistake(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)[:600]}, 400)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, or a sentence that says why not; port 0 takes any that is free."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port: expected a number from 0 to 65535, got {port}")
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        raise ConfigError(f"--port: expected a free port of {host}, got {port} ({error})") from None
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """What to type into a browser to get there."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}/"


def serve(app: FastAPI, listener: socket.socket, *, open_at: str | None = None) -> None:
    """Answer on this socket until Ctrl-C; `open_at` is opened in the browser."""
    if open_at is not None:
        # The socket listens already: whoever comes early waits a moment.
        threading.Thread(target=webbrowser.open, args=(open_at,), daemon=True).start()
    uvicorn.Server(config(app)).run(sockets=[listener])


def config(app: FastAPI) -> uvicorn.Config:
    """How uvicorn runs the playground: quiet, and without a word about what it is.

    Connections are kept for longer than clients keep theirs: the side that asks is then the one that closes, and no
    request sets out on a connection that is just being closed here.
    """
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, ws="none", timeout_keep_alive=KEEP_ALIVE
    )
