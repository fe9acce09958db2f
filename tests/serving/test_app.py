from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import torch

from torchcaps.data import load_data
from torchcaps.models import create_model
from torchcaps.nn import Scores
from torchcaps.serving import Classifier, ServeLimits, create_server_app

from .conftest import KEY, NAMES, noise, png, served

PNG = {"content-type": "image/png"}
BEARER = {"authorization": f"Bearer {KEY}"}


def check(classifier: Classifier, images: torch.Tensor, predictions: list[dict[str, Any]]) -> None:
    """Compare predictions with what the network says of the images alone."""
    with torch.inference_mode():
        activations = classifier.model(images).activations
        shares = Scores(classifier.model)(images)
    assert len(predictions) == len(images)
    for row, share, found in zip(activations.tolist(), shares.tolist(), predictions, strict=True):
        best = max(range(10), key=row.__getitem__)
        assert found["label"] == NAMES[best]
        assert found["labels"] == [NAMES[best]]
        assert found["activations"] == pytest.approx(dict(zip(NAMES, row, strict=True)), abs=1e-5)
        assert found["probabilities"] == pytest.approx(dict(zip(NAMES, share, strict=True)), abs=1e-5)
        assert found["probability"] == pytest.approx(share[best], abs=1e-5)
        assert classifier.rejection is not None
        rejected = max(row) < -classifier.rejection.thresholds["activation"]
        assert (found["rejected"] is not None) == rejected
        assert not rejected or f"{max(row):.3g}" in found["rejected"]


def test_image_file(client: httpx.Client, classifier: Classifier) -> None:
    images = noise(3)
    answers = [client.post("predict", content=png(image), headers=PNG) for image in images]
    assert [answer.status_code for answer in answers] == [200] * 3
    check(classifier, images, [answer.json()["predictions"][0] for answer in answers])
    assert (answers[0].json()["network"], answers[0].json()["calibrated"]) == ("fresh", True)


def test_several_arrays(client: httpx.Client, classifier: Classifier) -> None:
    images = noise(40)
    answer = client.post("predict", json={"images": images.tolist()})
    check(classifier, images, answer.json()["predictions"])
    rejected = [entry["rejected"] for entry in answer.json()["predictions"]]
    assert 0 < sum(reason is not None for reason in rejected) < 40


def test_several_files(client: httpx.Client, classifier: Classifier) -> None:
    images = noise(5)
    files = [base64.b64encode(png(image)).decode() for image in images]
    check(classifier, images, client.post("predict", json={"files": files}).json()["predictions"])
    inverted = client.post("predict", json={"files": files, "invert": True}).json()["predictions"]
    check(classifier, 1 - images, inverted)
    one = client.post("predict?invert=true", content=png(images[0]), headers=PNG).json()["predictions"]
    check(classifier, 1 - images[:1], one)


def test_requests_of_many_clients_share_batches(classifier: Classifier) -> None:
    images, barrier = noise(24), threading.Barrier(24)
    with served(classifier, limits=ServeLimits(max_batch=24, max_wait=5.0)) as (_, client):

        def ask(number: int) -> dict[str, Any]:
            barrier.wait(30)
            return client.post("predict", content=png(images[number]), headers=PNG).json()["predictions"][0]

        with ThreadPoolExecutor(24) as pool:
            predictions = list(pool.map(ask, range(24)))
        text = client.get("metrics").text
    check(classifier, images, predictions)
    # Nothing but the full batch ends the wait of 5 seconds.
    assert "torchcaps_batch_size_sum 24\ntorchcaps_batch_size_count 1\n" in text


def test_shutdown_answers_waiting_images(classifier: Classifier) -> None:
    image = noise(1)
    with (
        served(classifier, limits=ServeLimits(max_batch=64, max_wait=1.0)) as (server, client),
        ThreadPoolExecutor(8) as pool,
    ):
        pending = [pool.submit(client.post, "predict", content=png(image[0]), headers=PNG) for _ in range(8)]
        while not server.server_state.tasks:
            pass
        server.should_exit = True
        answers = [each.result() for each in pending]
    assert [answer.status_code for answer in answers] == [200] * 8
    assert {answer.headers["connection"] for answer in answers} == {"close"}


def test_network_without_temperature_and_thresholds(classifier: Classifier) -> None:
    plain = Classifier("plain", create_model("cnn_small").eval(), NAMES)
    with served(plain) as (_, client):
        answer = client.post("predict", content=png(noise(1)[0]), headers=PNG).json()
        about = client.get("model").json()
    assert answer["calibrated"] is False
    assert sum(answer["predictions"][0]["probabilities"].values()) == pytest.approx(1)
    assert answer["predictions"][0]["rejected"] is None
    assert (about["calibrated"], about["rejects"]) == (False, False)


def test_two_labels_per_image() -> None:
    model = create_model("capsnet_small").eval()
    with served(Classifier("pairs", model, NAMES, num_labels=2)) as (_, client):
        found = client.post("predict", content=png(noise(1)[0]), headers=PNG).json()["predictions"][0]
    order = sorted(NAMES, key=lambda name: -found["activations"][name])
    assert found["labels"] == order[:2]


def test_stereo_pairs_are_arrays() -> None:
    model = create_model("cnn_small", (2, 28, 28)).eval()
    with served(Classifier("pairs", model, NAMES)) as (_, client):
        refused = client.post("predict", content=png(noise(1)[0]), headers=PNG)
        answer = client.post("predict", json={"images": noise(2).view(1, 2, 28, 28).tolist()})
        assert client.get("model").json()["takes_files"] is False
    assert refused.status_code == 400
    assert "2 channels" in refused.json()["error"]
    assert answer.status_code == 200


def test_description_of_the_network(client: httpx.Client) -> None:
    about = client.get("model").json()
    assert about["classes"] == list(NAMES)
    assert about["image_shape"] == [1, 28, 28]
    assert (about["calibrated"], about["rejects"], about["takes_files"]) == (True, True, True)
    health = client.get("health").json()
    assert (health["status"], health["network"], health["waiting_images"]) == ("ok", "fresh", 0)


def test_schema_describes_bodies_and_responses(classifier: Classifier) -> None:
    schema = create_server_app(classifier, api_key=KEY).openapi()
    operation = schema["paths"]["/predict"]["post"]
    content = operation["requestBody"]["content"]
    assert set(content) == {"application/json", "image/*", "application/octet-stream"}
    models = schema["components"]["schemas"]
    assert {"PredictRequest", "PredictResponse", "ImageResult", "ErrorResponse"} <= set(models)
    assert set(models["PredictRequest"]["properties"]) == {"images", "files", "invert"}
    assert operation["security"] == [{"HTTPBearer": []}]
    assert "security" not in schema["paths"]["/health"]["get"]
    references = str(schema).split("#/components/schemas/")[1:]
    assert {text.split("'")[0] for text in references} <= set(models)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": KEY},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Basic {KEY}"},
        {"authorization": "Bearer \xe4\xf6"},
        {"cookie": f"torchcaps_token={KEY}"},
    ],
)
def test_requests_without_the_key_are_refused(keyed: httpx.Client, headers: dict[str, str]) -> None:
    encoded: Any = {name: value.encode("latin-1") for name, value in headers.items()}
    for path in ("model", "metrics", f"model?token={KEY}"):
        assert keyed.get(path, headers=encoded).status_code == 401
    answer = keyed.post("predict", content=png(noise(1)[0]), headers={**PNG, **encoded})
    assert answer.status_code == 401
    assert KEY not in answer.text
    assert keyed.get("health", headers=encoded).status_code == 200


@pytest.fixture(scope="module")
def keyed(classifier: Classifier) -> Any:
    with served(classifier, api_key=KEY) as (_, client):
        yield client


def test_key_is_accepted_under_any_name_of_the_server(keyed: httpx.Client) -> None:
    answer = keyed.post("predict", content=png(noise(1)[0]), headers={**PNG, **BEARER, "host": "capsules.example"})
    assert answer.status_code == 200
    assert keyed.get("model", headers=BEARER).status_code == 200


def test_digits_of_bundled_weights() -> None:
    data = load_data("digits", "test").subset(range(40))
    model = create_model("cnn_small", pretrained="mnist_cnn")
    with served(Classifier("mnist_cnn", model, "0123456789")) as (_, client):
        found = client.post("predict", json={"images": (data.images.float() / 255).tolist()}).json()["predictions"]
    correct = sum(entry["label"] == str(int(label)) for entry, label in zip(found, data.labels, strict=True))
    assert correct >= 38
