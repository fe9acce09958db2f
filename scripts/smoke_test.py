"""Test of an installed wheel: the kernels load and agree with the reference, and bundled weights classify digits."""

from __future__ import annotations

import sys

import torch

import torchcaps as tc
from torchcaps.ops import _native


def main() -> None:
    """Run the test; a failure ends the process with a message."""
    if _native.missing_reason() is not None:
        sys.exit(f"kernels: expected a library that loads, but there is none ({_native.missing_reason()})")
    torch.manual_seed(0)
    poses, weight = torch.randn(4, 18, 8), torch.randn(18, 5, 8, 16) * 0.1
    children = tc.types.Capsules(poses, poses.norm(dim=-1))
    fast = tc.ops.route(children, weight, "dynamic", backend="cpu")
    reference = tc.ops.route(children, weight, "dynamic", backend="reference")
    torch.testing.assert_close(fast.poses, reference.poses, rtol=1e-4, atol=1e-5)
    data = tc.load_data("digits", "test")
    images = torch.stack([data[index][0] for index in range(100)])
    labels = torch.tensor([int(data[index][1]) for index in range(100)])
    model = tc.create_model("capsnet_small", pretrained="mnist_dynamic")
    with torch.no_grad():
        correct = int((model(images).activations.argmax(dim=-1) == labels).sum())
    if correct < 97:
        sys.exit(f"digits: expected at least 97 of 100 correct predictions, got {correct}")
    print(f"torchcaps {tc.__version__}: {_native.instruction_set()} kernels, {correct} of 100 digits correct")


if __name__ == "__main__":
    main()
