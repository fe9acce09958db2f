"""Capsules for signals of different lengths: a layer over time, a mask for the padding, classes of the whole signal."""

from typing import Any

import torch
from torch import Tensor, nn

import torchcaps as tc

WAVES = ["sine", "square", "sawtooth"]


class SignalNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, 16, 5), nn.ReLU())
        self.primary = tc.nn.PrimaryCaps1d(16, caps=4, dim=8, kernel_size=5, stride=2)
        vectors: dict[str, Any] = {"pose": "vector", "routing": "dynamic"}
        self.middle = tc.nn.CapsConv1d(4, 4, kernel_size=3, stride=2, dims=(8, 8), competition="local", **vectors)
        self.head = tc.nn.ClassCaps(4, len(WAVES), dims=(8, 16), **vectors)

    def forward(self, signals: Tensor, lengths: Tensor) -> tc.Capsules:
        children = self.primary(self.stem(signals))  # poses [B, T', 4, 8]
        # A capsule is present if its whole receptive field, 9 samples, lies within the signal.
        first = 2 * torch.arange(children.poses.shape[1])  # [T']
        mask = first + 9 <= lengths[:, None]  # [B, T']
        parents = self.middle(children, mask)
        return self.head(parents, self.middle.window(children).seen(mask))


def draw(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Waves of 40 to 80 samples with noise, padded with zeros to 80."""
    labels, lengths = torch.randint(3, (count,)), torch.randint(40, 81, (count,))
    turns = torch.rand(count, 1) + (0.04 + 0.03 * torch.rand(count, 1)) * torch.arange(80)  # [B, T]
    waves = torch.stack([(2 * torch.pi * turns).sin(), (2 * torch.pi * turns).sin().sign(), 2 * (turns % 1) - 1])
    signals = waves[labels, torch.arange(count)] + 0.2 * torch.randn(count, 80)  # [B, T]
    signals[torch.arange(80) >= lengths[:, None]] = 0
    return signals.unsqueeze(1), lengths, labels


torch.manual_seed(0)
model, margin = SignalNetwork(), tc.nn.MarginLoss()
optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(91):
    signals, lengths, labels = draw(32)
    loss = margin(model(signals, lengths), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 30 == 0:
        print(f"step {step:3}   loss {loss.item():.3f}")

signals, lengths, labels = draw(500)
with torch.no_grad():
    found = model(signals, lengths).activations.argmax(dim=1)
    # What lies behind the end of a signal has no effect.
    noise = torch.where(torch.arange(80) >= lengths[:, None, None], 9.0, signals)
    same = model(noise, lengths).activations.argmax(dim=1)
print(f"accuracy on new signals: {(found == labels).float().mean():.1%}")
print(f"predictions that other padding changes: {int((found != same).sum())}")
