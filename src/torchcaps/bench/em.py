"""Matrix capsules with EM routing: one convolutional layer and whole training steps, with and without kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.bench._case import CASES, Candidate, Case, Point, Tasks, one_axis_sweep
from torchcaps.bench._layer import forward_and_backward
from torchcaps.models import create_model
from torchcaps.nn import CapsConv2d, ClassCaps, EMRouting, SpreadLoss
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

# The lower layer of `matrix_capsnet_small`: 8 -> 16 types, 3x3, stride 2, on a grid of 14x14.
LAYER: Point = {"batch": 32, "types": 8, "parents": 16, "grid": 14, "iters": 3}
SMALL: Point = {"batch": 32, "iters": 3}
# Grid, child types, parent types, kernel, stride
CHECKED = ((5, 2, 3, 3, 2), (4, 1, 1, 2, 1), (6, 3, 17, 3, 1))


def make_children(point: Point) -> Capsules:
    """Return a grid of random capsules that require gradients."""
    generator = torch.Generator().manual_seed(0)
    shape = (point["batch"], point["grid"], point["grid"], point["types"])
    poses = torch.randn(*shape, 16, generator=generator)  # [B, H, W, I, 16]
    return Capsules(poses.requires_grad_(), torch.rand(shape, generator=generator).requires_grad_())


def layer_tasks(backend: str, point: Point) -> Tasks:
    """Return the tasks of a layer, with the gradients of children, weight and betas."""
    torch.manual_seed(0)
    routing = EMRouting(iters=point["iters"])
    layer = CapsConv2d(point["types"], point["parents"], 3, 2, routing=routing)
    layer.backend = "reference" if backend == "reference" else "auto"
    children = make_children(point)
    return forward_and_backward(lambda: layer(children), [*children, *layer.parameters()])


def training_step(name: str, backend: str, point: Point) -> Tasks:
    """Return a task: forward, spread loss, backward, update, on random images of the shape of smallNORB.

    Args:
        name: Name of the model.
        backend: Backend of the layer.
        point: Sizes of the measurement.

    Returns:
        The task.
    """
    torch.manual_seed(0)
    model = create_model(name, (2, 32, 32), 5, routing={"name": "em", "iters": point["iters"]})
    for module in model.modules():
        if isinstance(module, CapsConv2d | ClassCaps):
            module.backend = "reference" if backend == "reference" else "auto"
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loss = SpreadLoss()
    images = torch.rand(point["batch"], 2, 32, 32)  # [B, 2, 32, 32]
    labels = torch.randint(0, 5, (point["batch"],))  # [B]

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss(model(images), labels).backward()
        optimiser.step()

    return {"step": step}


def vote_bytes(point: Point) -> int:
    """Return the size of all votes of the layer in float32."""
    positions = ((point["grid"] - 3) // 2 + 1) ** 2
    return 4 * 16 * point["batch"] * positions * 9 * point["types"] * point["parents"]


def check_kernel() -> None:
    """Compare the kernel that `auto` selects with the reference, on small layers of both kinds."""
    layers: list[tuple[int, int, CapsConv2d | ClassCaps]] = [
        (grid, types, CapsConv2d(types, parents, kernel, stride)) for grid, types, parents, kernel, stride in CHECKED
    ]
    layers.append((3, 2, ClassCaps(2, 5, centres=([0.2, 0.5, 0.8], [0.2, 0.5, 0.8]))))
    generator = torch.Generator().manual_seed(0)
    for grid, types, layer in layers:
        children = make_children({"batch": 3, "grid": grid, "types": types})
        window = layer.window(children)

        def run(
            backend: str, poses: Tensor, activations: Tensor, weight: Tensor, *betas: Tensor, window=window
        ) -> Tensor:
            routing: Any = EMRouting()
            routing.beta_u, routing.beta_a = betas
            out = routing.route_conv(Capsules(poses, activations), weight, window, backend=backend)
            return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)

        weight = torch.randn(layer.weight.shape, generator=generator)  # [K*K*I, J, 4, 4] or [I, J, 4, 4]
        betas = torch.randn(2, layer.weight.shape[1], generator=generator).unbind()  # [J], [J]
        assert_matches_reference(
            lambda *tensors, run=run: run("auto", *tensors),
            lambda *tensors, run=run: run("reference", *tensors),
            [children.poses.detach(), children.activations.detach(), weight, *betas],
            factor=8,
        )


CASES.add(
    "em",
    Case(
        title="A convolutional layer of matrix capsules: 8 to 16 types, 3x3, stride 2, on 14x14, EM in 3 iterations",
        candidates=(
            Candidate("fused", lambda point: layer_tasks("auto", point)),
            Candidate("reference", lambda point: layer_tasks("reference", point), lambda point: 9 * vote_bytes(point)),
        ),
        points=one_axis_sweep(LAYER, batch=(8, 16, 64), types=(4, 16), parents=(8, 32), iters=(1, 2, 5)),
        quick=({**LAYER, "batch": 4},),
        check=check_kernel,
    ),
)

CASES.add(
    "matrix_capsnet",
    Case(
        title="One training step of matrix_capsnet_small on 32x32 images: forward, spread loss, backward, Adam",
        candidates=(
            Candidate("torchcaps", lambda point: training_step("matrix_capsnet_small", "auto", point)),
            Candidate(
                "reference",
                lambda point: training_step("matrix_capsnet_small", "reference", point),
                lambda point: 75e6 * point["batch"],
            ),
            Candidate("matrix_capsnet (32, 32, 32, 32)", lambda point: training_step("matrix_capsnet", "auto", point)),
        ),
        points=(SMALL,),
        quick=({**SMALL, "batch": 4},),
        check=check_kernel,
    ),
)
