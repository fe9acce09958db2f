"""Errors of the web servers as JSON: one sentence and the id of the request, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from torchcaps.errors import TorchcapsError
from torchcaps.serving.middleware import error_response

MAX_ERROR = 600


class ErrorResponse(BaseModel):
    """The body of every failed request."""

    error: str
    request_id: str


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        400: "a value that the network does not support",
        401: "no valid token or key",
        403: "another origin or host",
        405: "another method",
        408: "a body that is too slow",
        413: "a body that is too large",
        415: "a body of another type",
        422: "a body that does not match the schema",
        429: "too many requests per second",
        503: "too many requests in progress",
    }.items()
}


def add_error_handlers(app: FastAPI) -> None:
    """Return every error of an app as `ErrorResponse`.

    Args:
        app: The app, with `SecurityMiddleware`.

    Example:
        >>> add_error_handlers(FastAPI())
    """
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(TorchcapsError, _torchcaps_error)


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
    # Static files match every path: they answer 404 or 405 also for a route of the API with another method.
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
