"""Layers whose parents are divided, compared with whole ones in each of two processes; run by test_shards.py.

python tests/nn/shard_cases.py RANK STORE
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.models import create_model
from torchcaps.nn import CapsLinear, make_router, shard_parents
from torchcaps.nn.head import SharedCaps
from torchcaps.ops import _backends
from torchcaps.train._strategies import shard_model
from torchcaps.types import Capsules

WORLD = 2
IN, OUT = 4, 5
ROUTINGS: dict[str, Any] = {
    "dynamic": "dynamic",
    "leaky": {"name": "dynamic", "leaky": True},
    "grad of the last iteration": {"name": "dynamic", "grad": "last", "iters": 2},
    "kmeans": "kmeans",
    "attention": "attention",
    "self_attention": "self_attention",
    "self_routing": "self_routing",
    "uniform": "uniform",
    "em": "em",
    "em with background": {"name": "em", "background": 0.5, "learn_background": True},
    "kuramoto": "kuramoto",
}


def make_layer(routing: Any, kind: str = "own", *, bias: bool = False, **options: Any) -> CapsLinear:
    torch.manual_seed(0)
    if kind == "types":
        return SharedCaps(3, 6, IN, OUT, routing=routing, bias=bias, dtype=torch.float64)
    count = None if kind == "shared" else 9
    return CapsLinear(count, 6, IN, OUT, routing=routing, bias=bias, dtype=torch.float64, **options)


def make_children(count: int, seed: int) -> Capsules:
    generator = torch.Generator().manual_seed(seed)
    poses = torch.randn(count, 9, IN, generator=generator, dtype=torch.float64)
    return Capsules(
        poses.requires_grad_(), torch.rand(count, 9, generator=generator, dtype=torch.float64).requires_grad_()
    )


def loss_of(parents: Capsules) -> Tensor:
    shape = parents.poses.shape[1:]
    weights = torch.linspace(-1, 1, shape.numel(), dtype=torch.float64).view(shape)
    return (parents.poses * weights).sum() + parents.activations.square().sum()


def compare(whole: CapsLinear, divided: CapsLinear, rank: int, sizes: tuple[int, ...], masked: bool = False) -> None:
    """Parents of the own samples, gradients of them, and gradients of all parameters."""
    results = []
    masks = [torch.rand(size, 9, generator=torch.Generator().manual_seed(size)) < 0.7 for size in sizes]
    batches = [make_children(size, seed) for seed, size in enumerate(sizes)]
    for batch, mask in zip(batches, masks, strict=True):
        results.append(whole(batch, mask if masked else None))
    # The loss of each process is its own; DDP and FSDP average the gradients.
    (torch.stack([loss_of(parents) for parents in results]).sum() / WORLD).backward()
    own = Capsules(*(tensor.detach().clone().requires_grad_() for tensor in batches[rank]))
    parents = divided(own, masks[rank] if masked else None)
    for part, expected in zip(parents, results[rank], strict=True):
        torch.testing.assert_close(part, expected)
    loss_of(parents).backward()
    for part, expected in zip(own, batches[rank], strict=True):
        assert part.grad is not None
        if expected.grad is not None:
            torch.testing.assert_close(part.grad, WORLD * expected.grad)
    for (name, parameter), expected in zip(divided.named_parameters(), whole.parameters(), strict=True):
        assert (parameter.grad is None) == (expected.grad is None), name
        if parameter.grad is None:
            continue
        gradient: Any = parameter.grad
        if hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        else:
            # Every process has such a parameter, with the gradient through its own parents.
            distributed.all_reduce(gradient)
            gradient = gradient / WORLD
        torch.testing.assert_close(gradient, expected.grad, msg=lambda text, name=name: f"{name}: {text}")


def cases() -> Iterator[tuple[str, Callable[[int, Any], None]]]:
    for name, routing in ROUTINGS.items():
        bias = name in ("dynamic", "leaky", "uniform", "kuramoto")
        for kind in ("own", "shared", "types") if name in ("dynamic", "em") else ("own", "shared"):

            def equal(rank: int, mesh: Any, routing: Any = routing, kind: str = kind, bias: bool = bias) -> None:
                whole, divided = (make_layer(routing, kind, bias=bias) for _ in range(2))
                compare(whole, shard_parents(divided, mesh), rank, (3, 3))

            yield f"{name}, {kind}", equal

        def masked(rank: int, mesh: Any, routing: Any = routing) -> None:
            whole, divided = make_layer(routing), make_layer(routing)
            compare(whole, shard_parents(divided, mesh), rank, (4, 4), masked=True)

        yield f"{name}, masked", masked
    yield (
        "batches of different sizes",
        lambda rank, mesh: compare(make_layer("dynamic"), shard_parents(make_layer("dynamic"), mesh), rank, (4, 1)),
    )
    yield (
        "a process without samples",
        lambda rank, mesh: compare(make_layer("em"), shard_parents(make_layer("em"), mesh), rank, (3, 0)),
    )
    yield "reference in pieces", in_pieces
    yield "kernels serve", kernels_serve
    yield "no whole weight", no_whole_weight
    yield "beside fully_shard", beside_fsdp
    yield "recompute beside DDP and fully_shard", recompute_beside_ddp_and_fsdp
    yield "models", models
    yield "errors", errors


def in_pieces(rank: int, mesh: Any) -> None:
    # 9 x 3 votes of 5 float64 are 1,080 bytes: one sample at a time.
    ops.set_votes_memory(0.001)
    try:
        for routing, masked in (("em", True), ("kuramoto", False)):
            whole, divided = make_layer(routing, backend="reference"), make_layer(routing)
            compare(whole, shard_parents(divided, mesh), rank, (4, 3), masked)
    finally:
        ops.set_votes_memory(None)


def kernels_serve(rank: int, mesh: Any) -> None:
    """Five routings have a kernel that takes the softmax of several processes; EM runs its reference."""
    for name in ("dynamic", "kmeans", "attention", "self_attention", "self_routing"):
        layer = shard_parents(make_layer(name, backend="cpu"), mesh)
        layer(make_children(2, rank))
    for name, backend in (("em", None), ("dynamic", "cpu")):
        params = {**make_layer(name).routing.params(make_children(2, 0)), "softmax": lambda logits: logits}
        kernel = _backends.choose_kernel(
            ops.ROUTINGS[name], "auto", make_children(2, 0), torch.ones(9, 3, IN, OUT), None, params
        )
        assert (None if kernel is None else kernel.backend) == backend, name


def no_whole_weight(rank: int, mesh: Any) -> None:
    layer = shard_parents(make_layer("dynamic"), mesh)
    weight: Any = layer.weight
    assert weight.to_local().shape == (9, 3, IN, OUT)
    assert weight.shape == (9, 6, IN, OUT)


class Network(nn.Module):
    def __init__(self, routing: str = "attention", **options: Any) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(IN, IN, dtype=torch.float64)
        self.classes = make_layer(routing, **options)

    def forward(self, children: Capsules) -> Tensor:
        return loss_of(self.classes(Capsules(self.first(children.poses), children.activations)))


def beside_fsdp(rank: int, mesh: Any) -> None:
    """A network in FSDP2 with divided parents takes the steps of the network of one process."""
    batches = [make_children(3, seed) for seed in range(WORLD)]
    one, several = Network(), Network()
    shard_parents(several.classes, mesh)
    # The gain and offset of attention belong to no parent: FSDP has them, with the layer that reads them.
    fully_shard(several.classes, mesh=mesh, ignored_params={several.classes.weight})
    fully_shard(several, mesh=mesh, ignored_params={several.classes.weight})
    take_steps(one, several, batches, rank)


def recompute_beside_ddp_and_fsdp(rank: int, mesh: Any) -> None:
    """`recompute`, one sample at a time, takes the steps of the reference in one process."""
    ops.set_votes_memory(0.001)
    try:
        for routing in ("em", "attention", "self_routing", "self_attention"):
            for wrap in (DistributedDataParallel, lambda network: fully_shard(network, mesh=mesh)):
                several = wrap(Network(routing, backend="recompute"))
                batches = [make_children(3, seed) for seed in range(WORLD)]
                take_steps(Network(routing, backend="reference"), several, batches, rank)
    finally:
        ops.set_votes_memory(None)


def take_steps(one: nn.Module, several: nn.Module, batches: list[Capsules], rank: int) -> None:
    """Train a network with all batches, and a divided one with its own; their parameters stay equal."""
    for network in (one, several):
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            losses = [network(batch) for batch in (batches if network is one else batches[rank : rank + 1])]
            torch.stack(losses).mean().backward()
            optimizer.step()
    for (name, whole), part in zip(one.named_parameters(), several.parameters(), strict=True):
        divided: Any = part
        divided = divided.full_tensor() if hasattr(divided, "full_tensor") else divided
        torch.testing.assert_close(divided, whole, msg=lambda text, name=name: f"{name}: {text}")


def models(rank: int, mesh: Any) -> None:
    """Whole networks with parameters in their routers, divided as `trainer.strategy=fsdp2` divides them."""
    options = {"image_shape": (1, 20, 20), "num_classes": 4}
    for name, routing in (("matrix_capsnet_small", "em"), ("capsnet_small", "variational")):
        networks = []
        for _ in range(2):
            torch.manual_seed(0)
            networks.append(create_model(name, routing=routing, **options).double())
        shard_model(networks[1], mesh)
        images = torch.rand(4, 1, 20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        for network, batch in zip(networks, (images, images.chunk(WORLD)[rank]), strict=True):
            parents = network(batch)
            (parents.poses.square().mean() + parents.activations.square().mean()).backward()
        for (place, whole), part in zip(networks[0].named_parameters(), networks[1].parameters(), strict=True):
            assert (whole.grad is None) == (part.grad is None), place
            if part.grad is not None:
                gradient: Any = part.grad
                torch.testing.assert_close(
                    gradient.full_tensor(), whole.grad, msg=lambda text, at=place: f"{at}: {text}"
                )


def errors(rank: int, mesh: Any) -> None:
    layer = make_layer("dynamic")
    with raises_about(ConfigError, "mesh:", 2):
        shard_parents(layer, init_device_mesh("cpu", (WORLD, 1)))
    with raises_about(ConfigError, "layer:", 7):
        shard_parents(CapsLinear(9, 7, IN, OUT), mesh)
    for name in ("variational", "random"):
        with raises_about(ConfigError, "routing:", type(make_router(name)).__name__):
            shard_parents(make_layer(name), mesh)
    with raises_about(ConfigError, "start:", "types"):
        shard_parents(make_layer({"name": "em", "start": "types"}), mesh)
    with raises_about(ConfigError, "layer:", "divided"):
        shard_parents(layer, mesh).trace(make_children(2, 0))
    with raises_about(ConfigError, "trainer.strategy:", "background"):
        shard_model(make_layer({"name": "em", "background": 0.5, "learn_background": True}), mesh)


def main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    # FSDP warns of layers that return views; none is changed in place here.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=60),
    )
    mesh = init_device_mesh("cpu", (WORLD,))
    for name, case in cases():
        print(f"case: {name}", flush=True)
        case(rank, mesh)
    distributed.destroy_process_group()
    print("all equal", flush=True)
    # A thread of torch may abort the process while the interpreter ends.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
