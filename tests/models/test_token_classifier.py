from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.models import TokenScores, create_model
from torchcaps.models.token_classifier import present_tokens
from torchcaps.nn import LOSSES, ROUTERS

NAMES = ("token_mean", "token_attention", "token_capsnet")


def sentences(lengths: list[int], total: int) -> torch.Tensor:
    """Random words, the same for every total length, then padding."""
    images = torch.zeros(len(lengths), 10, 1, total)
    for number, length in enumerate(lengths):
        words = torch.rand(10, 30, generator=torch.Generator().manual_seed(number))
        images[number, :, 0, :length] = words[:, :length]
    return images


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, (10, 1, 8), 3).eval()
    short, long = model(sentences([3, 8], 8)), model(sentences([3, 8], 21))
    torch.testing.assert_close(long, short, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(sentences([3], 3)).poses, short.poses[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("router", sorted(set(ROUTERS) - {"random"}))
def test_padding_changes_nothing_for_any_router(router: str) -> None:
    torch.manual_seed(0)
    model = create_model("token_capsnet", (10, 1, 8), 3, routing=router).eval()
    images = sentences([3, 8], 8)
    torch.testing.assert_close(model(sentences([3, 8], 21)), model(images), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.trace(images).routed.poses, model(images).poses, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 6])
def test_equal_parameters(classes: int) -> None:
    counts = [sum(p.numel() for p in create_model(name, (100, 1, 40), classes).parameters()) for name in NAMES]
    assert max(counts) - min(counts) < 0.005 * min(counts)


def test_empty_image_has_one_token() -> None:
    images = torch.zeros(2, 3, 2, 2)
    images[1, 1, 1, 0] = 0.5
    assert present_tokens(images).tolist() == [[True, False, False, False], [False, False, True, False]]
    for name in NAMES:
        assert create_model(name, (3, 2, 2), 4)(images).activations.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_learns_which_word_decides(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, (10, 1, 8), 2, dropout=0.0)
    images, labels = sentences([8] * 64, 8), torch.randint(2, (64,))
    images[torch.arange(64), 0, 0, torch.randint(8, (64,))] = 4.0 * labels - 2
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(60):
        loss = LOSSES[model.default_loss]()(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (model(images).activations.argmax(1) == labels).float().mean() > 0.95


def test_unknown_pooling() -> None:
    with raises_about(ConfigError, "pool", "'max'"):
        TokenScores((10, 1, 8), 3, pool="max", hidden=4)  # pyright: ignore[reportArgumentType]
