from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeCV

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.evaluation import fit_ridge
from torchcaps.evaluation.ridge import PENALTIES


def problem(count: int, size: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(count)
    x = 3 + random.normal(size=(count, size)) * random.uniform(0.1, 4, size)
    return x, x @ random.normal(size=(size, 2)) + noise * random.normal(size=(count, 2)) - 5


def scaled(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=0)
    return centred / np.sqrt((centred**2).mean())


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize(("count", "size"), [(50, 4), (8, 20)])
def test_same_predictions_as_scikit_learn(count: int, size: int, penalty: float) -> None:
    x, y = problem(count, size, 1.0)
    fitted = fit_ridge(torch.from_numpy(x), torch.from_numpy(y), (penalty,))
    expected = Ridge(alpha=penalty).fit(scaled(x), y).predict(scaled(x))
    assert np.allclose(fitted(torch.from_numpy(x)).numpy(), expected)


@pytest.mark.parametrize("noise", [0.01, 3.0, 300.0])
def test_same_penalty_as_scikit_learn(noise: float) -> None:
    x, y = problem(40, 12, noise)
    expected = RidgeCV(alphas=PENALTIES).fit(scaled(x), y)
    assert fit_ridge(torch.from_numpy(x), torch.from_numpy(y)).penalty == expected.alpha_


def test_constant_features_predict_the_mean() -> None:
    y = torch.tensor([[1.0], [3.0]])
    assert fit_ridge(torch.ones(2, 3), y)(torch.ones(1, 3)).tolist() == [[2.0]]


def test_sizes() -> None:
    with raises_about(ShapeError, "features", "(1, 3)"):
        fit_ridge(torch.ones(1, 3), torch.ones(1, 1))
    with raises_about(ShapeError, "features", "(4, 3)", "(5, 1)"):
        fit_ridge(torch.ones(4, 3), torch.ones(5, 1))
