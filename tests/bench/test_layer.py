from __future__ import annotations

import torch

from torchcaps import ops
from torchcaps.bench._layer import DIGIT_CAPS, IN_DIM, OUT_DIM, forward_and_backward, vote_bytes


def test_vote_bytes():
    votes = ops.vote(torch.zeros(1, 1152, IN_DIM), torch.zeros(1152, 10, IN_DIM, OUT_DIM))
    assert 128 * votes.nbytes == vote_bytes(DIGIT_CAPS)


def test_forward_and_backward_calls(monkeypatch):
    first, second = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    seen, calls = [], []

    def layer():
        seen.append(torch.is_grad_enabled())
        return [first * 2, second.sum()]

    right = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args: calls.append(right(*args)))
    tasks = forward_and_backward(layer, [first, second])
    assert list(tasks) == ["forward", "forward+backward"]
    for call in tasks.values():
        call()
    assert seen == [False, True]
    assert [grad.tolist() for grad in calls[0]] == [[2, 2], [1, 1, 1]]
