"""The estimator: scikit-learn's own checks, pipelines and searches, weights, calibration, resuming."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import torchcaps as tc
from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError, ShapeError
from torchcaps.integrations import _fitting
from torchcaps.integrations.sklearn import CapsNetClassifier

X, Y = load_digits(n_class=4, return_X_y=True)
SMALL: dict[str, Any] = {"model": "cnn_small", "epochs": 3, "random_state": 0}


def weights_of(estimator: CapsNetClassifier) -> list[torch.Tensor]:
    return list(estimator.network_.state_dict().values())


def assert_same(first: CapsNetClassifier, second: CapsNetClassifier) -> None:
    for ours, theirs in zip(weights_of(first), weights_of(second), strict=True):
        assert torch.equal(ours, theirs)
    assert first.network_.temperature == second.network_.temperature
    assert first.loss_curve_ == second.loss_curve_


def test_scikit_learn_checks() -> None:
    assert tc.integrations.sklearn.CapsNetClassifier is CapsNetClassifier
    results = check_estimator(CapsNetClassifier(epochs=5), on_skip=None)
    # Checks are skipped only where pandas or the array API are missing.
    passed = [result["check_name"] for result in results if result["status"] == "passed"]
    assert len(passed) >= 59
    assert {"check_sample_weight_equivalence_on_dense_data", "check_estimators_pickle"} <= set(passed)
    assert not [result for result in results if result["expected_to_fail"]]


def test_default_classifies_digits() -> None:
    estimator = CapsNetClassifier(epochs=5, random_state=0).fit(X[:500], Y[:500])
    assert estimator.score(X[500:], Y[500:]) > 0.9
    assert len(estimator.loss_curve_) == 5


def test_pipeline_search_and_scores() -> None:
    pipeline = make_pipeline(StandardScaler(), CapsNetClassifier(**SMALL))
    assert cross_val_score(pipeline, X, Y, cv=2).mean() > 0.8
    search = GridSearchCV(CapsNetClassifier(**SMALL), {"lr": [1e-9, 0.003]}, cv=2, n_jobs=2)
    search.fit(X[:200], Y[:200])
    assert search.best_params_ == {"lr": 0.003}
    again: Any = clone(search.best_estimator_)
    assert not hasattr(again, "network_")
    assert again.get_params() == search.best_estimator_.get_params()


def test_joblib_file(tmp_path: Path) -> None:
    estimator = CapsNetClassifier(**SMALL).fit(X[:200], Y[:200])
    joblib.dump(estimator, tmp_path / "net.joblib")
    loaded = joblib.load(tmp_path / "net.joblib")
    assert np.array_equal(loaded.predict_proba(X), estimator.predict_proba(X))
    # The loaded estimator continues as the stored one.
    assert_same(loaded.partial_fit(X[200:300], Y[200:300]), estimator.partial_fit(X[200:300], Y[200:300]))


def test_order_has_no_effect_and_weights_count_as_copies() -> None:
    estimator = CapsNetClassifier(**SMALL).fit(X[:150], Y[:150])
    assert_same(CapsNetClassifier(**SMALL).fit(X[:150][::-1], Y[:150][::-1]), estimator)
    weights = np.arange(150) % 3
    weighted = CapsNetClassifier(**SMALL).fit(X[:150], Y[:150], weights)
    copied = CapsNetClassifier(**SMALL).fit(X[:150].repeat(weights, axis=0), Y[:150].repeat(weights))
    assert_same(weighted, copied)
    assert not torch.equal(weights_of(weighted)[0], weights_of(estimator)[0])


def test_heavy_class_is_predicted_more_often() -> None:
    noise = np.random.default_rng(0).uniform(size=(300, 64))
    labels = np.arange(300) % 2
    estimator = CapsNetClassifier(**SMALL).fit(noise, labels, np.where(labels == 1, 10.0, 1.0))
    assert estimator.predict(np.random.default_rng(1).uniform(size=(100, 64))).mean() > 0.9


def test_probabilities_are_calibrated() -> None:
    estimator = CapsNetClassifier(epochs=5, random_state=0).fit(X[:500], Y[:500])
    fitted = log_loss(Y[500:], estimator.predict_proba(X[500:]))
    # The lengths of class capsules alone are less certain than they are right.
    assert 0.1 < (estimator.network_.temperature or 1) < 0.9
    estimator.network_.temperature = None
    assert fitted < 0.8 * log_loss(Y[500:], estimator.predict_proba(X[500:]))
    assert CapsNetClassifier(**SMALL, holdout=0).fit(X[:100], Y[:100]).network_.temperature is None


def test_partial_fit_learns() -> None:
    estimator = CapsNetClassifier("cnn_small", random_state=0)
    for start in range(0, 600, 100):
        estimator.partial_fit(X[start : start + 100], Y[start : start + 100], classes=range(4))
    assert estimator.score(X[600:], Y[600:]) > 0.8
    assert estimator.network_.temperature is not None
    assert len(estimator.loss_curve_) == 6
    with raises_about(ConfigError, "y", 9):
        estimator.partial_fit(X[:2], [0, 9])
    with raises_about(ConfigError, "classes", 9):
        estimator.partial_fit(X[:2], Y[:2], classes=[0, 9])
    with raises_about(ConfigError, "classes", "None"):
        CapsNetClassifier("cnn_small").partial_fit(X, Y)


def test_interrupted_fit_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"model": "cnn_small", "epochs": 4, "random_state": 0}
    whole = CapsNetClassifier(**options).fit(X[:200], Y[:200])
    write, written = _fitting.write_bytes, []

    def stop_after_two(path: Path, content: bytes) -> None:
        write(path, content)
        written.append(path)
        if len(written) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(_fitting, "write_bytes", stop_after_two)
    stopped = CapsNetClassifier(**options, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(X[:200], Y[:200])
    assert_same(CapsNetClassifier(**options, folder=tmp_path).fit(X[:200], Y[:200]), whole)
    assert len(written) == 4
    # A finished fit is read back; other data, weights or parameters have a file of their own.
    assert_same(CapsNetClassifier(**options, folder=tmp_path).fit(X[:200], Y[:200]), whole)
    assert len(written) == 4
    CapsNetClassifier(**{**options, "epochs": 1}, folder=tmp_path).fit(X[:200], Y[:200])
    CapsNetClassifier(**{**options, "epochs": 1}, folder=tmp_path).fit(X[:200], Y[:200], np.arange(200))
    assert len(list(tmp_path.glob("fit-*.pt"))) == 3


def test_seed_of_an_interrupted_fit_is_kept(tmp_path: Path) -> None:
    first = CapsNetClassifier("cnn_small", epochs=1, folder=tmp_path).fit(X[:100], Y[:100])
    assert_same(CapsNetClassifier("cnn_small", epochs=1, folder=tmp_path).fit(X[:100], Y[:100]), first)


def test_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    CapsNetClassifier(**SMALL, folder=tmp_path).fit(X[:100], Y[:100])
    (file,) = tmp_path.iterdir()
    buffer = io.BytesIO()
    torch.save({"format": 99}, buffer)
    for content in (file.read_bytes()[:1000], b"", buffer.getvalue()):
        file.write_bytes(content)
        with raises_about(CheckpointError, "folder", file.name):
            CapsNetClassifier(**SMALL, folder=tmp_path).fit(X[:100], Y[:100])


@pytest.mark.parametrize(("shape", "expected"), [((64,), (1, 8, 8)), ((8, 8), (1, 8, 8)), ((1, 8, 8), (1, 8, 8))])
def test_images_and_vectors(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    estimator = CapsNetClassifier(**SMALL).fit(X[:100].reshape(-1, *shape), Y[:100])
    assert estimator.network_.image_shape == expected
    assert estimator.n_features_in_ == 64
    flat = estimator.predict_proba(X[:10])
    assert np.array_equal(estimator.predict_proba(X[:10].reshape(-1, *shape)), flat)


def test_small_images_are_enlarged_and_bytes_are_scaled() -> None:
    colours = (np.random.default_rng(0).uniform(size=(20, 3, 5, 6)) * 200).astype(np.uint8)
    estimator = CapsNetClassifier(epochs=1).fit(colours, np.arange(20) % 2)
    assert estimator.network_.image_shape == (3, 15, 18)
    images = estimator._layout.images(colours.reshape(20, -1).astype(np.float32))
    torch.testing.assert_close(images[:, :, ::3, ::3], torch.from_numpy(colours) / 255)
    vectors = CapsNetClassifier(**SMALL, image_shape=(2, 4, 8)).fit(X[:50], Y[:50])
    assert vectors.network_.image_shape == (2, 4, 8)


def test_decoder_is_trained_where_it_is_named() -> None:
    kind: Any = {"model": "capsnet_small", "epochs": 1}
    assert CapsNetClassifier(**kind).fit(X[:20], Y[:20]).network_.decoder is None
    estimator = CapsNetClassifier(**kind, options={"decoder": "mlp"}).fit(X[:20], Y[:20])
    decoder = estimator.network_.decoder
    assert decoder is not None
    assert all(weight.grad is not None for weight in decoder.parameters())


def test_bad_arguments_are_refused() -> None:
    for name, value in {"epochs": 0, "batch_size": 1.5, "lr": -1, "holdout": 1.0, "options": 3}.items():
        with raises_about(ConfigError, name, value):
            CapsNetClassifier(**{"model": "cnn_small", name: value}).fit(X[:20], Y[:20])
    with raises_about(ConfigError, "model", "transforming_autoencoder"):
        CapsNetClassifier("transforming_autoencoder").fit(X[:20], Y[:20])
    with raises_about(ShapeError, "image_shape", "(3, 3)"):
        CapsNetClassifier("cnn_small", image_shape=(3, 3)).fit(X[:20], Y[:20])
    for shape, hint in (
        ((10, 2, 128), "signals"),
        ((10, 28, 28, 3), "channels come first"),
        ((4, 2, 2, 2, 2), "no images"),
    ):
        with raises_about(ShapeError, "X", hint):
            CapsNetClassifier("cnn_small").fit(np.zeros(shape), np.arange(shape[0]) % 2)
    with pytest.raises(ValueError, match="non-zero"):
        CapsNetClassifier("cnn_small").fit(X[:20], Y[:20], np.zeros(20))
