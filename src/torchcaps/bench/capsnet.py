"""`capsnet`: a training step beside its convolutions and the usual implementation, in 16 bits, and one image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.bench._case import CASES, Candidate, Case, Point, Tasks
from torchcaps.bench.baselines import broadcast_routing
from torchcaps.bench.dynamic import check_kernel
from torchcaps.models import ImageModel, create_model
from torchcaps.nn import MarginLoss, ReconstructionLoss
from torchcaps.types import Capsules

PAPER: Point = {"batch": 128}
# Side of the square matrices whose product gives the peak rate of the machine.
SIDE = 4096


class UsualHead(nn.Module):
    """Class capsules as public code implements them: weight copied per sample, votes stored."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(1152, 10, 8, 16))  # [I, J, P, D]
        self.bias = nn.Parameter(torch.full((10, 16), 0.1))  # [J, D]

    def forward(self, children: Capsules) -> Capsules:
        poses = broadcast_routing(children.flatten().poses, self.weight, self.bias, iters=3)  # [B, J, D]
        return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


def digits(point: Point) -> tuple[Tensor, Tensor]:
    """Return random images [B, 1, 28, 28] and labels [B]."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(point["batch"], 1, 28, 28, generator=generator)  # [B, 1, 28, 28]
    return images, torch.randint(0, 10, (point["batch"],), generator=generator)


def training_step(model: ImageModel, optimiser: torch.optim.Optimizer, point: Point) -> Tasks:
    """Return a task: forward, margin and reconstruction loss, backward, update.

    Args:
        model: The model.
        optimiser: Its optimiser.
        point: Sizes of the measurement.

    Returns:
        The task.
    """
    images, labels = digits(point)
    margin, reconstruction = MarginLoss(), ReconstructionLoss()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        capsules = model(images)
        loss = margin(capsules, labels) + reconstruction(model.decode(capsules, labels), images)
        loss.backward()
        optimiser.step()

    return {"step": step}


def ours(point: Point) -> Tasks:
    """Prepare a training step of `capsnet`."""
    torch.manual_seed(0)
    model = create_model("capsnet")
    return training_step(model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), point)


def narrow(point: Point) -> Tasks:
    """Prepare the same step as `trainer.precision=bf16-mixed` runs it."""
    (step,) = ours(point).values()

    def mixed() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            step()

    return {"step": mixed}


def usual(point: Point) -> Tasks:
    """Prepare the same step with the usual class capsules and the default optimiser."""
    torch.manual_seed(0)
    model = create_model("capsnet")
    model.add_module("head", UsualHead())
    return training_step(model, torch.optim.Adam(model.parameters(), lr=1e-3), point)


def only_convolutions() -> nn.Sequential:
    """Return the two convolutions of `capsnet`."""
    torch.manual_seed(0)
    return nn.Sequential(*(module for module in create_model("capsnet").modules() if isinstance(module, nn.Conv2d)))


def inference(model: nn.Module, point: Point) -> Tasks:
    """Return a task: the images of a point through a model, without gradients.

    Args:
        model: The model.
        point: Sizes of the measurement.

    Returns:
        The task.
    """
    model.eval()
    images, _ = digits(point)

    def forward() -> None:
        with torch.inference_mode():
            model(images)

    return {"forward": forward}


def convolutions(point: Point) -> Tasks:
    """Prepare forward and backward of the two convolutions of `capsnet`."""
    layers = only_convolutions()
    images, _ = digits(point)
    with torch.no_grad():
        grad = torch.randn_like(layers(images))  # [B, 256, 6, 6]

    def step() -> None:
        layers.zero_grad(set_to_none=True)
        layers(images).backward(grad)

    return {"step": step}


def conv_flops(point: Point) -> float:
    """Count multiplications and additions: forward and weight gradient of both, input gradient of the second."""
    first = 2 * 20 * 20 * 256 * 81
    second = 2 * 6 * 6 * 256 * 256 * 81
    return point["batch"] * (2.0 * first + 3.0 * second)


def product(point: Point) -> Tasks:
    """Prepare one product of two large square matrices."""
    left, right = torch.rand(2, SIDE, SIDE)
    return {"step": lambda: torch.mm(left, right)}


CASES.add(
    "capsnet",
    Case(
        title="One training step of capsnet: forward, both losses, backward, Adam",
        candidates=(
            Candidate("torchcaps", ours),
            Candidate("usual implementation", usual),
            Candidate("convolutions only", convolutions, flops=conv_flops),
            Candidate(f"torch.mm, {SIDE} x {SIDE}", product, flops=lambda point: 2.0 * SIDE**3),
        ),
        points=(PAPER,),
        quick=({"batch": 16},),
        check=check_kernel,
        memory=False,
    ),
)

CASES.add(
    "precision",
    Case(
        title="One training step of capsnet in 32 bits and with trainer.precision=bf16-mixed",
        candidates=(Candidate("32-true", ours), Candidate("bf16-mixed", narrow)),
        points=(PAPER,),
        quick=({"batch": 16},),
        check=check_kernel,
        memory=False,
    ),
)

CASES.add(
    "one_image",
    Case(
        title="One image through capsnet",
        candidates=(
            Candidate("torchcaps", lambda point: inference(create_model("capsnet"), point)),
            Candidate("convolutions only", lambda point: inference(only_convolutions(), point)),
        ),
        points=({"batch": 1},),
        quick=({"batch": 1},),
        check=check_kernel,
        memory=False,
    ),
)
