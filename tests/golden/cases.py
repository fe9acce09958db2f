"""The golden cases: inputs made from integers alone, and a hash of every result and gradient."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

from golden import adapter

Hashes = dict[str, str]
Case = Callable[[], Hashes]
FLOATS = {"f32": torch.float32, "f64": torch.float64}
# Batch, children, parents, child pose, parent pose. The last is large enough for two threads.
DENSE_SIZES = [(1, 1, 1, 1, 1), (17, 33, 2, 5, 7), (5, 9, 3, 8, 16), (70, 300, 4, 8, 16)]


# Grid, kernel, stride, competition, types, parents, pose matrix or sizes of pose vectors, batch.
GAUSSIAN: dict[str, dict[str, Any]] = {
    "dense": {"grid": (300, 1), "kernel": (300, 1), "types": 1, "batch": 37, "poses": (8, 16)},
    "dense_shared": {"grid": (70, 1), "kernel": (70, 1), "types": 1, "poses": (5, 7), "shared": True},
    "vectors": {"poses": (5, 7)},
    "matrices": {"competition": 2},
    "local": {"competition": 1, "stride": 2},
    "one_child": {"grid": (1, 1), "kernel": (1, 1), "types": 1, "parents": 1, "poses": (1, 1)},
    "offsets": {"kernel": (5, 5), "shared": True, "offsets": True},
}


KURAMOTO: dict[str, dict[str, Any]] = {
    "dense": {"grid": (300, 1), "kernel": (300, 1), "types": 1, "batch": 37, "poses": (8, 16)},
    "dense_first": {"grid": (300, 1), "kernel": (300, 1), "types": 1, "batch": 37, "poses": (8, 16), "turns": 0},
    "matrices": {"competition": 2, "turns": 3},
    "offsets": {"kernel": (5, 5), "shared": True, "offsets": True, "competition": 1},
    "one_child": {"grid": (1, 1), "kernel": (1, 1), "types": 1, "parents": 1, "poses": (1, 1)},
}


class Values:
    """Numbers in [-1, 1) from the raw bits of PCG64, whose stream numpy promises to keep."""

    def __init__(self, seed: int) -> None:
        self.bits = numpy.random.PCG64(seed)

    def __call__(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
        count = int(numpy.prod(shape))
        # 24 bits are exact in float32, and a multiplication by a power of two changes none of them.
        whole = (self.bits.random_raw(count) >> numpy.uint64(40)).astype(numpy.int64)
        values = torch.from_numpy(whole.reshape(shape)).double() / 2**23 - 1
        return (values * scale).to(dtype)

    def positive(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return (self(*shape, dtype=torch.float64) / 2 + 0.5).to(dtype)


def digest(tensor: Tensor) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the raw bytes."""
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:16]


def differentiate(function: Callable[..., list[Tensor]], inputs: dict[str, Tensor | None]) -> Hashes:
    """Hashes of the results, and of the gradient of every input for fixed weights on the results."""
    leaves = {name: None if value is None else value.requires_grad_() for name, value in inputs.items()}
    out = function(*leaves.values())
    values = Values(99)
    weights = [values(*tensor.shape, dtype=tensor.dtype) for tensor in out]
    given = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    grads = torch.autograd.grad(out, list(given.values()), weights)
    return {f"out{k}": digest(tensor) for k, tensor in enumerate(out)} | {
        f"grad_{name}": digest(grad) for name, grad in zip(given, grads, strict=True)
    }


def kernel_cases() -> Iterator[tuple[str, Case]]:
    """The kernels alone: their bits depend on our C++, the compiler and the mathematical library of C."""
    for kind, dtype in FLOATS.items():
        for sizes in DENSE_SIZES:
            label = "x".join(map(str, sizes))
            for shared in (False, True):
                where = f"{kind}-{label}{'-shared' if shared else ''}"
                yield f"dynamic-{where}", _dynamic(sizes, dtype, shared)
                for parts in ("", "key", "key_prior"):
                    yield (
                        f"attention_pass-{where}{'-' * bool(parts)}{parts}",
                        _attention_pass(sizes, dtype, shared, parts),
                    )
            yield f"weighted_sum-{kind}-{label}", _weighted_sum(sizes, dtype)
        for name, options in {
            "one": {"iters": 1},
            "two": {"iters": 2, "bias": False},
            "leaky": {"leaky": True},
            "leaky_one": {"leaky": True, "iters": 1},
            "last": {"last_only": True},
            "leaky_last": {"leaky": True, "last_only": True, "iters": 5},
        }.items():
            yield f"dynamic-{kind}-{name}", _dynamic((17, 33, 3, 5, 7), dtype, False, **options)
        for name, options in {
            "one": {"iters": 1},
            "kernel": {},
            "stride": {"stride": 2},
            "local": {"local": True},
            "shared": {"shared": True, "iters": 2},
            "offsets": {"kernel": 5, "shared": True, "offsets": True},
            "many_parents": {"parents": 19},
            "one_child": {"size": 1, "kernel": 1, "types": 1, "parents": 1},
        }.items():
            yield f"em-{kind}-{name}", _em(dtype, **options)
        for name, options in GAUSSIAN.items():
            for variational in (False, True):
                label = "variational" if variational else "em"
                yield f"gaussian-{kind}-{label}-{name}", _gaussian(dtype, variational, **options)
        for name, options in KURAMOTO.items():
            yield f"kuramoto-{kind}-{name}", _kuramoto(dtype, **options)


def _dynamic(
    sizes: tuple[int, ...],
    dtype: torch.dtype,
    shared: bool,
    *,
    bias: bool = True,
    iters: int = 3,
    leaky: bool = False,
    last_only: bool = False,
) -> Case:
    def run() -> Hashes:
        batch, children, parents, in_dim, out_dim = sizes
        values = Values(1)
        inputs = {
            "poses": values(batch, children, in_dim, dtype=dtype),
            "weight": values(*(() if shared else (children,)), parents, in_dim, out_dim, dtype=dtype, scale=0.5),
            "bias": values(parents, out_dim, dtype=dtype, scale=0.1) if bias else None,
        }
        options = {"iters": iters, "leaky": leaky, "last_only": last_only}
        return differentiate(lambda *tensors: adapter.dynamic(*tensors, **options), inputs)

    return run


def _attention_pass(sizes: tuple[int, ...], dtype: torch.dtype, shared: bool, parts: str) -> Case:
    def run() -> Hashes:
        batch, children, parents, in_dim, out_dim = sizes
        values = Values(2)
        inputs = {
            "poses": values(batch, children, in_dim, dtype=dtype),
            "weight": values(*(() if shared else (children,)), parents, in_dim, out_dim, dtype=dtype, scale=0.5),
            "key": values(batch, parents, out_dim, dtype=dtype) if "key" in parts else None,
            "prior": values(children, parents, dtype=dtype, scale=0.1) if "prior" in parts else None,
        }
        return differentiate(adapter.attention_pass, inputs)

    return run


def _weighted_sum(sizes: tuple[int, ...], dtype: torch.dtype) -> Case:
    def run() -> Hashes:
        batch, children, parents, in_dim, out_dim = sizes
        values = Values(3)
        out, grads = adapter.weighted_sum(
            values.positive(children, parents, batch, dtype=dtype),
            values(batch, children, in_dim, dtype=dtype),
            values(children, parents, in_dim, out_dim, dtype=dtype),
            values(batch, parents, out_dim, dtype=dtype),
        )
        names = ("share", "poses", "weight")
        return {"out0": digest(out[0])} | {f"grad_{n}": digest(grad) for n, grad in zip(names, grads, strict=True)}

    return run


def _em(
    dtype: torch.dtype,
    *,
    size: int = 5,
    types: int = 3,
    parents: int = 7,
    kernel: int = 3,
    stride: int = 1,
    iters: int = 3,
    local: bool = False,
    shared: bool = False,
    offsets: bool = False,
) -> Case:
    def run() -> Hashes:
        values = Values(4)
        inputs = {
            "poses": values(3, size, size, types, 16, dtype=dtype),
            "activations": values.positive(3, size, size, types, dtype=dtype),
            "weight": values((1 if shared else kernel * kernel) * types, parents, 4, 4, dtype=dtype),
            "betas": values(2, parents, dtype=dtype),
        }
        places = values(kernel * kernel, 2, dtype=dtype) if offsets else None
        temperatures = [0.01 * (1 - 0.95 ** (step + 1)) for step in range(iters)]
        window, constants = [kernel, kernel, stride, int(local)], [0.1, 1e-8, *temperatures]
        return differentiate(
            lambda poses, activations, weight, betas: adapter.em(
                poses, activations, weight, betas, places, window=window, constants=constants
            ),
            dict(inputs),
        )

    return run


def _gaussian(
    dtype: torch.dtype,
    variational: bool,
    *,
    grid: tuple[int, int] = (5, 5),
    kernel: tuple[int, int] = (3, 3),
    stride: int = 1,
    competition: int = 0,
    types: int = 2,
    parents: int = 5,
    poses: tuple[int, int] | None = None,
    batch: int = 3,
    shared: bool = False,
    offsets: bool = False,
) -> Case:
    def run() -> Hashes:
        values, places = Values(6), kernel[0] * kernel[1]
        matrix = poses or (3, 3)
        inputs = {
            "poses": values(batch, *grid, types, poses[0] if poses else 9, dtype=dtype),
            "activations": values.positive(batch, *grid, types, dtype=dtype),
            "weight": values((1 if shared else places) * types, parents, *matrix, dtype=dtype),
            "betas": values(2 if variational else 3, parents, dtype=dtype),
        }
        added = values(places, 2, dtype=dtype) if offsets else None
        em = [0.1, 1e-7, 0.1, 0.1, 0.2, 0.3, 0.5, 1.0, 1.0]
        options = {
            "window": [*kernel, stride, competition, 0, int(poses is None)],
            "iters": 3,
            "variational": variational,
            "constants": [1.0, 0.5, 2.0] if variational else em,
        }
        return differentiate(
            lambda poses, activations, weight, betas: adapter.gaussian(
                poses, activations, weight, betas, added, **options
            ),
            dict(inputs),
        )

    return run


def _kuramoto(
    dtype: torch.dtype,
    *,
    grid: tuple[int, int] = (5, 5),
    kernel: tuple[int, int] = (3, 3),
    competition: int = 0,
    types: int = 2,
    parents: int = 5,
    poses: tuple[int, int] | None = None,
    batch: int = 3,
    shared: bool = False,
    offsets: bool = False,
    turns: int = 2,
) -> Case:
    def run() -> Hashes:
        values, places = Values(7), kernel[0] * kernel[1]
        matrix = poses or (3, 3)
        size = poses[1] if poses else 9
        positions = [one - other + 1 for one, other in zip(grid, kernel, strict=True)]
        inputs = {
            "poses": values(batch, *grid, types, poses[0] if poses else 9, dtype=dtype),
            "activations": values.positive(batch, *grid, types, dtype=dtype),
            "weight": values((1 if shared else places) * types, parents, *matrix, dtype=dtype),
            # Products of phases of up to 1 keep every length real, whether or not they belong to the phases.
            "keys": values(batch, *positions, parents, turns * (size + turns), dtype=dtype, scale=0.25),
        }
        added = values(places, 2, dtype=dtype) if offsets else None
        window = [*kernel, 1, competition, 0, int(poses is None)]
        return differentiate(
            lambda poses, activations, weight, keys=None: adapter.kuramoto(
                poses, activations, weight, keys, added, window=window, turns=turns
            ),
            {name: None if name == "keys" and not turns else tensor for name, tensor in inputs.items()},
        )

    return run


ROUTERS: dict[str, dict[str, Any]] = {
    name: {"name": name}
    for name in (
        "dynamic",
        "em",
        "variational",
        "kmeans",
        "attention",
        "self_attention",
        "self_routing",
        "kuramoto",
        "uniform",
        "random",
    )
} | {
    "dynamic_leaky": {"name": "dynamic", "leaky": True},
    "dynamic_last": {"name": "dynamic", "grad": "last"},
}
BIASED = ("dynamic", "dynamic_leaky", "uniform", "random")


def layer_cases() -> Iterator[tuple[str, Case]]:
    """Whole layers with the default backend: their bits depend on torch and the CPU as well."""
    for name, routing in ROUTERS.items():
        yield f"linear-{name}", _layer(lambda routing=routing: adapter.linear(routing), (6, 20, 8))
        if name in BIASED:
            yield f"linear-{name}-bias", _layer(lambda routing=routing: adapter.linear(routing, bias=True), (6, 20, 8))
        yield f"linear-{name}-shared", _layer(lambda routing=routing: adapter.linear(routing, shared=True), (6, 20, 8))
        yield (
            f"linear-{name}-reference",
            _layer(lambda routing=routing: adapter.linear(routing, backend="reference"), (6, 20, 8)),
        )
        yield f"conv-{name}", _layer(lambda routing=routing: adapter.conv(routing), (2, 5, 5, 3, 16))
        yield f"classes-{name}", _layer(lambda routing=routing: adapter.classes(routing), (2, 5, 5, 3, 16))


def _layer(make: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> Case:
    def run() -> Hashes:
        values = Values(5)
        layer = make()
        parameters = list(layer.parameters())
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(values(*parameter.shape, scale=0.5))
        poses, activations = values(*shape).requires_grad_(), values.positive(*shape[:-1]).requires_grad_()
        out = adapter.run_layer(layer, poses, activations)
        weights = [values(*tensor.shape) for tensor in out]
        # Not every router reads the activations of the children.
        grads = torch.autograd.grad(out, [poses, activations, *parameters], weights, allow_unused=True)
        names = ["grad_poses", "grad_activations", *(f"grad_parameter{k}" for k in range(len(parameters)))]
        return {f"out{k}": digest(tensor) for k, tensor in enumerate(out)} | {
            name: digest(grad) for name, grad in zip(names, grads, strict=True) if grad is not None
        }

    return run


def training_cases() -> Iterator[tuple[str, Case]]:
    """Every registered model after a few steps of training."""
    for name in adapter.model_names():
        yield name, _training(name)


def _training(name: str, steps: int = 3, batch: int = 4) -> Case:
    def run() -> Hashes:
        torch.manual_seed(0)
        model = adapter.make_model(name).train()
        found = {"initial": _digest_all(model)}
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        for step in range(steps):
            values = Values(step)
            images = values.positive(batch, *model.image_shape)
            loss = adapter.training_loss(model, images, torch.arange(step, step + batch) % 10)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            found[f"loss{step}"] = digest(loss)
        return found | {"final": _digest_all(model)}

    return run


def _digest_all(model: torch.nn.Module) -> str:
    # Neither names nor order count: a restructured model registers the same values elsewhere. Nor do buffers that are
    # not saved.
    parts = sorted(digest(tensor) for tensor in model.state_dict().values() if tensor.is_floating_point())
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]
