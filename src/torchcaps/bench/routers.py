"""The DigitCaps layer with each router: its fast twin, where there is one, beside its reference."""

from __future__ import annotations

import inspect
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from torchcaps.bench._case import CASES, Case, Contender, Point, Tasks, around
from torchcaps.bench._layer import CHECKED, DIGIT_CAPS, IN_DIM, OUT_DIM, forward_and_backward, vote_bytes
from torchcaps.nn import ROUTERS, CapsLinear, make_router
from torchcaps.ops._dispatch import TWINS, Backend, choose
from torchcaps.testing import assert_matches
from torchcaps.types import Capsules


def capsules(poses: Tensor) -> Capsules:
    """Children whose activations are the lengths of their poses."""
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


def layer_tasks(name: str, backend: Backend, point: Point) -> Tasks:
    """Forward alone, and forward with the gradients of poses, weight and what the router learns."""
    torch.manual_seed(0)
    options = {"iters": point["iters"]} if "iters" in point else {}
    router = make_router({"name": name, **options})
    layer = CapsLinear(point["children"], point["parents"], IN_DIM, OUT_DIM, routing=router, backend=backend)
    poses = torch.rand(point["batch"], point["children"], IN_DIM).sub_(0.5).requires_grad_()
    return forward_and_backward(lambda: layer(capsules(poses)), [poses, *layer.parameters()])


def check_twin(name: str) -> None:
    """Hold the twin that `auto` takes to the reference, with a weight per child and with one that all share."""
    torch.manual_seed(0)
    for batch, children, parents, in_dim, out_dim in CHECKED:
        for in_caps in (children, None):
            layer = CapsLinear(in_caps, parents, in_dim, out_dim, routing=make_router(name))
            # Away from where they start, so that none is neutral.
            for parameter in layer.routing.parameters():
                nn.init.normal_(parameter)
            assert_matches(
                partial(_run, layer, "auto"),
                partial(_run, layer, "reference"),
                [torch.randn(batch, children, in_dim), *layer.parameters()],
                factor=4,
            )


def _run(layer: CapsLinear, backend: Backend, poses: Tensor, *parameters: Tensor) -> Tensor:
    layer.backend = backend
    given = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
    out: Capsules = functional_call(layer, given, (capsules(poses),))
    return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)


def add_router(name: str, title: str, copies: float) -> None:
    """Enter a router as a benchmark; its reference holds so many times the size of the votes at its peak."""

    def reference_needs(point: Point) -> float:
        return copies * vote_bytes(point)

    def fused_needs(point: Point) -> float:
        served = choose("auto", name, torch.device("cpu"), torch.float32)
        return reference_needs(point) if served == "reference" else 0

    base = dict(DIGIT_CAPS)
    if "iters" not in inspect.signature(ROUTERS[name]).parameters:
        del base["iters"]
    reference = Contender("reference", partial(layer_tasks, name, "reference"), reference_needs)
    fused = Contender("fused", partial(layer_tasks, name, "auto"), fused_needs)
    CASES.add(
        name,
        Case(
            title=f"The DigitCaps layer with {title}: 1152 capsules of 8 to 10 capsules of 16",
            contenders=(fused, reference) if name in TWINS else (reference,),
            points=around(base, batch=(16, 64), children=(288, 4608), parents=(5, 20)),
            quick=({**base, "batch": 16},),
            check=partial(check_twin, name),
        ),
    )


add_router("kmeans", "k-means routing", 5)
add_router("attention", "inverted dot-product attention", 5)
add_router("self_attention", "self-attention routing", 5)
add_router("self_routing", "self-routing", 3)
add_router("variational", "variational Bayes", 15)
add_router("kuramoto", "synchronisation", 22)
add_router("uniform", "uniform routing", 3)
add_router("random", "random routing", 3)
