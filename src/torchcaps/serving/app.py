"""The prediction server: `POST /predict`, `/model`, `/health`, `/metrics` and the schema of the API."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from torch import Tensor

from torchcaps import __version__
from torchcaps.errors import DataError
from torchcaps.serving.batcher import Batcher
from torchcaps.serving.classifier import CheckedPrediction, Classifier
from torchcaps.serving.errors import ERROR_RESPONSES, add_error_handlers
from torchcaps.serving.metrics import MetricsMiddleware, ServerMetrics
from torchcaps.serving.middleware import LOOPBACK, RequestLimits, SecurityMiddleware
from torchcaps.serving.predictions import HealthResponse, ImageResult, ModelResponse, PredictRequest, PredictResponse

IMAGE_TYPES = ("image/*", "application/octet-stream")
CONTENT_TYPES = ("application/json", *IMAGE_TYPES)
PATHS = ("/predict", "/model", "/health", "/metrics", "/openapi.json")
# Threads that decode images: with more of them each would only become slower.
DECODERS = 2
_BEARER = HTTPBearer(auto_error=False)
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class ServeLimits:
    """Limits of a prediction server.

    Attributes:
        max_batch: Largest number of images that go through the network together.
        max_wait: Seconds that the first image of a batch waits for others.
        max_queue: Largest number of waiting images.
        max_images: Largest number of images in a request.
        max_body: Largest body in bytes.
        max_pixels: Largest number of pixels in an image file.
        max_rate: Requests per second from one address.
    """

    max_batch: int = 32
    max_wait: float = 0.005
    max_queue: int = 1024
    max_images: int = 64
    max_body: int = 8 * 1024 * 1024
    max_pixels: int = 16_000_000
    max_rate: float = 5000.0

    def requests(self) -> RequestLimits:
        """Return the limits of the middleware."""
        return RequestLimits(body=self.max_body, rate=self.max_rate, burst=2 * self.max_rate)


def create_server_app(
    classifier: Classifier, *, host: str = "127.0.0.1", limits: ServeLimits | None = None, api_key: str | None = None
) -> FastAPI:
    """Create the prediction server of a network.

    Args:
        classifier: The network.
        host: Name under which the server is reached, beside those of the loopback interface.
        limits: Limits of the server.
        api_key: Secret that requests must carry as `Authorization: Bearer KEY`, except those of `/health`.

    Returns:
        An ASGI application.

    Raises:
        ConfigError: If a limit is out of range.

    Example:
        >>> from torchcaps import load_model
        >>> app = create_server_app(Classifier("mnist_cnn", load_model("mnist_cnn"), "0123456789"))
        >>> sorted(app.openapi()["paths"])
        ['/health', '/metrics', '/model', '/predict']
    """
    limits, metrics = ServeLimits() if limits is None else limits, ServerMetrics()
    batcher = Batcher(
        classifier.predict,
        max_batch=limits.max_batch,
        max_wait=limits.max_wait,
        max_queue=limits.max_queue,
        observe=metrics.batches.add,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with batcher:
            yield

    # Swagger UI and ReDoc would load scripts from other hosts.
    app = FastAPI(title="torchcaps", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    # With a key, other names do not matter: a page of another site does not have it.
    hosts = (*LOOPBACK, host) if api_key is None else ("*",)
    app.add_middleware(SecurityMiddleware, hosts=hosts, limits=limits.requests(), content_types=CONTENT_TYPES)
    app.add_middleware(MetricsMiddleware, metrics=metrics, paths=PATHS)
    add_error_handlers(app)
    _add_routes(app, _Service(classifier, limits, batcher, metrics), api_key)
    return app


class _Service:
    """What the routes share."""

    def __init__(
        self, classifier: Classifier, limits: ServeLimits, batcher: Batcher[CheckedPrediction], metrics: ServerMetrics
    ) -> None:
        self.classifier = classifier
        self.limits = limits
        self.batcher = batcher
        self.metrics = metrics
        self.decoders = anyio.CapacityLimiter(DECODERS)

    async def predict(self, request: Request, invert: bool) -> PredictResponse:
        body, kind = await request.body(), request.headers.get("content-type", "").partition(";")[0].strip().lower()
        decode = self._decode_json if kind == "application/json" else self._decode_file
        images = await anyio.to_thread.run_sync(decode, body, invert, limiter=self.decoders)
        checked = await self.batcher.submit(images)
        self.metrics.images += len(checked)
        self.metrics.rejected += sum(entry.rejected is not None for entry in checked)
        return PredictResponse.model_construct(
            network=self.classifier.name,
            calibrated=self.classifier.model.temperature is not None,
            predictions=[ImageResult.of(entry) for entry in checked],
        )

    def _decode_file(self, body: bytes, invert: bool) -> list[Tensor]:
        return [self.classifier.read(body, invert=invert, max_pixels=self.limits.max_pixels)]

    def _decode_json(self, body: bytes, invert: bool) -> list[Tensor]:
        try:
            request = PredictRequest.model_validate_json(body)
        except ValidationError as error:
            # As FastAPI reports its own: the place starts with `body`.
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            placed = [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
            raise RequestValidationError(placed) from None
        if request.count() > self.limits.max_images:
            raise DataError(f"images: expected at most {self.limits.max_images} in a request, got {request.count()}")
        if request.images is not None:
            return request.arrays(self.classifier.model.image_shape)
        images = []
        for number, content in enumerate(request.contents()):
            try:
                images += self._decode_file(content, invert or request.invert)
            except DataError as error:
                raise DataError(f"files.{number}: {error}") from None
        return images

    def describe(self) -> ModelResponse:
        model, limits = self.classifier.model, self.limits
        return ModelResponse(
            network=self.classifier.name,
            classes=list(self.classifier.class_names),
            image_shape=model.image_shape,
            num_labels=self.classifier.num_labels,
            calibrated=model.temperature is not None,
            rejects=self.classifier.rejection is not None,
            takes_files=model.image_shape[0] in (1, 3),
            max_images=limits.max_images,
            max_body=limits.max_body,
            max_pixels=limits.max_pixels,
        )


def _add_routes(app: FastAPI, service: _Service, api_key: str | None) -> None:
    guard: Any = [] if api_key is None else [Depends(_key_check(api_key))]

    @app.post("/predict", responses=ERROR_RESPONSES, dependencies=guard, openapi_extra=_request_body())
    async def predict(
        request: Request, invert: Annotated[bool, Query(description="invert light and dark of an image file")] = False
    ) -> PredictResponse:
        """Classify one image file, or several images as JSON."""
        response = await service.predict(request, invert)
        # Not validated once more, which would take as long as a small network.
        return Response(response.model_dump_json(), media_type="application/json")  # pyright: ignore[reportReturnType]

    @app.get("/model", responses=ERROR_RESPONSES, dependencies=guard)
    async def model() -> ModelResponse:
        """The classes and the input of the network, and the limits of the server."""
        return service.describe()

    @app.get("/health", responses=ERROR_RESPONSES)
    async def health() -> HealthResponse:
        """Whether the server answers; needs no key."""
        waiting = len(service.batcher)
        return HealthResponse(status="ok", network=service.classifier.name, version=__version__, waiting_images=waiting)

    @app.get("/metrics", responses=ERROR_RESPONSES, dependencies=guard, response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters and histograms in the text format of Prometheus."""
        return Response(service.metrics.text({"waiting_images": len(service.batcher)}), media_type=TEXT_FORMAT)

    app.openapi = lambda: _schema(app)


def _key_check(api_key: str) -> Any:
    expected = api_key.encode()

    async def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        key = "" if given is None else given.credentials
        if not secrets.compare_digest(key.encode(), expected):
            headers = {"www-authenticate": "Bearer", "connection": "close"}
            raise HTTPException(401, "key: expected `Authorization: Bearer KEY` with the key of the server", headers)

    return check


def _request_body() -> dict[str, Any]:
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/PredictRequest"}}}
    return {"requestBody": {"required": True, "content": {**content, **dict.fromkeys(IMAGE_TYPES, binary)}}}


def _schema(app: FastAPI) -> dict[str, Any]:
    """The schema of the API; FastAPI does not see the body, which the route reads itself."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        body = PredictRequest.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"] |= {**body.pop("$defs", {}), "PredictRequest": body}
        app.openapi_schema = schema
    return app.openapi_schema
