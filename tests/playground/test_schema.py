"""Requests generated from the schema of the API, and arbitrary ones: every response is JSON, and none is a 5xx."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchcaps.data import load_data
from torchcaps.models import create_model
from torchcaps.playground import PlaygroundNetwork, create_app
from torchcaps.playground.network import interleave_classes

SCHEMA = create_app(
    PlaygroundNetwork("none", "", create_model("capsnet_small"), interleave_classes(load_data("digits", "test"), 10))
).openapi()
PATHS = sorted(path for path, methods in SCHEMA["paths"].items() if "post" in methods)
MANY = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def bitmaps() -> st.SearchStrategy[Any]:
    """A bitmap with the right number of bytes, which no schema can state."""
    sides = st.tuples(st.integers(1, 40), st.integers(1, 40))

    def filled(size: tuple[int, int]) -> st.SearchStrategy[Any]:
        count = size[0] * size[1]
        pixels = st.binary(min_size=count, max_size=count).map(lambda raw: base64.b64encode(raw).decode())
        return st.fixed_dictionaries({"width": st.just(size[0]), "height": st.just(size[1]), "pixels": pixels})

    return sides.flatmap(filled)


def drawn(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A strategy for the values of a schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return bitmaps() if name == "Picture" else drawn(SCHEMA["components"]["schemas"][name])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return st.one_of([drawn(option) for option in schema[union]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    kind = schema.get("type")
    if kind == "object":
        fields = {name: drawn(part) for name, part in schema.get("properties", {}).items()}
        required = set(schema.get("required", []))
        optional = {name: part for name, part in fields.items() if name not in required}
        return st.fixed_dictionaries({name: fields[name] for name in required}, optional=optional)
    if kind == "array":
        if "prefixItems" in schema:
            return st.tuples(*[drawn(part) for part in schema["prefixItems"]]).map(list)
        most = min(schema.get("maxItems", 8), 24)
        least = min(schema.get("minItems", 0), most)
        return st.lists(drawn(schema.get("items", {})), min_size=least, max_size=most)
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind == "integer":
        return st.integers(low, high)
    if kind == "number":
        low = schema.get("exclusiveMinimum", low)
        high = schema.get("exclusiveMaximum", high)
        return st.floats(low, high, allow_nan=False, allow_infinity=False)
    if kind == "string":
        return st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 12), 60))
    return {"boolean": st.booleans(), "null": st.none()}.get(str(kind), ANYTHING)


def body_of(path: str) -> st.SearchStrategy[Any]:
    request = SCHEMA["paths"][path]["post"].get("requestBody")
    return st.just({}) if request is None else drawn(request["content"]["application/json"]["schema"])


def check(response: httpx.Response) -> None:
    assert response.headers["content-type"] == "application/json"
    if response.status_code == 200:
        assert "error" not in response.json()
    else:
        assert response.status_code in (400, 422), response.text
        sentence = response.json()["error"]
        assert set(response.json()) == {"error", "request_id"}
        assert 0 < len(sentence) < 700
        assert "Traceback" not in sentence


@pytest.mark.parametrize("path", PATHS)
def test_valid_bodies(client: httpx.Client, path: str) -> None:
    @MANY
    @given(body_of(path))
    def check_body(body: Any) -> None:
        check(client.post(path, json=body))

    check_body()


@pytest.mark.parametrize("path", PATHS)
def test_arbitrary_bodies(client: httpx.Client, path: str) -> None:
    import json

    @MANY
    @given(ANYTHING.map(json.dumps) | st.text(max_size=20))
    def check_body(text: str) -> None:
        content = text.encode("utf-8", "surrogatepass")
        check(client.post(path, content=content, headers={"content-type": "application/json"}))

    check_body()


def test_schema_lists_every_error(client: httpx.Client) -> None:
    assert client.get("/api/openapi.json").json() == SCHEMA
    for path in PATHS:
        responses = SCHEMA["paths"][path]["post"]["responses"]
        assert {"200", "400", "401", "403", "405", "408", "413", "415", "422", "429", "503"} <= set(responses)
