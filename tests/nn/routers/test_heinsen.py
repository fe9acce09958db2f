from __future__ import annotations

import torch

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsHead, CapsLinear, HeinsenRouting
from torchcaps.types import Capsules


def test_any_number_of_children() -> None:
    layer = CapsLinear(None, 3, in_dim=4, out_dim=5, routing="heinsen", bias=True)
    for count in (1, 9, 40):
        assert layer(Capsules(torch.randn(2, count, 4), torch.rand(2, count))).poses.shape == (2, 3, 5)


def test_credit_is_zero_for_padding_and_is_traced() -> None:
    torch.manual_seed(0)
    head = CapsHead(12, 3, caps=1, dim=8, routing="heinsen", pool="none").eval()
    tokens, mask = torch.randn(2, 5, 12), torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    trace = head.trace(tokens, mask)
    credit = trace.extras["credit"]  # [R, B, N, J]
    assert credit.shape == (2, 2, 5, 3)
    assert not credit[:, 0, 3:].any()
    assert credit[:, 0, :3].all()
    torch.testing.assert_close(trace.routed.poses, head(tokens, mask).poses)


def test_training_finds_the_tokens_that_matter() -> None:
    # The class is the sign of one feature in one token of many; credit must point at that token.
    torch.manual_seed(0)
    head = CapsHead(6, 2, caps=1, dim=8, routing="heinsen", pool="none", dropout=0.0)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    tokens = torch.randn(64, 10, 6)
    tokens[..., 0] = 0.0
    place, label = torch.randint(10, (64,)), torch.randint(2, (64,))
    tokens[torch.arange(64), place, 0] = 6.0 * (2 * label - 1)
    for _ in range(60):
        scores = head(tokens).activations
        loss = torch.nn.functional.cross_entropy(10 * scores, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (head(tokens).activations.argmax(1) == label).float().mean() > 0.9
    credit = head.trace(tokens).extras["credit"][-1]  # [B, N, J]
    found = credit[torch.arange(64), :, label].abs().argmax(dim=1)
    assert (found == place).float().mean() > 0.8


def test_prepare_once_and_options() -> None:
    router = HeinsenRouting()
    with raises_about(ConfigError, "routing", "a new one"):
        router(torch.randn(2, 6, 3, 5), Capsules(torch.rand(2, 6, 4), torch.rand(2, 6)))
    router.prepare(6, 3, 4, 5)
    with raises_about(ConfigError, "routing", "another layer"):
        router.prepare(6, 3, 4, 5)
    with raises_about(ConfigError, "iters", "0"):
        HeinsenRouting(iters=0)
