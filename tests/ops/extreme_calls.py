"""Call operators and routings with extreme arguments, in a process of its own with little memory.

    python tests/ops/extreme_calls.py dynamic_routing --calls 400 --seed 0

Valid calls are recorded from a layer of every router and backend, so that a new operator needs no entry here. Sizes,
strides, types, devices, lists and numbers of these calls are then replaced. Each call must return what does not depend
on uninitialised memory, or raise an error of torchcaps, or that of an allocation. The call is printed before it is
made: if the process dies, the last line names it.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchcaps import ops
from torchcaps.errors import TorchcapsError
from torchcaps.nn import CapsConv2d, CapsLinear, list_routers, make_router
from torchcaps.ops.conv import PoseKind
from torchcaps.types import Capsules

Arguments = list[Any]
SIZES = (0, 1, 2, 2**31 - 1, 2**31, 2**32 + 1, 2**60)
# Operations of torch on 2^31 empty rows take minutes.
SMALL_SIZES = (0, 1, 2)
INTEGERS = (0, 1, -1, 2, 3, 2**31 - 1, 2**31, 2**32, 2**62, -(2**63), 2**63 - 1)
FLOATS = (0.0, -1.0, 1e-300, 1e300, float("inf"), float("nan"))
DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn)
TEXTS = ("", "x", "x x", "[" * 50, "{", '{"iters": -1}', "global matrix", "em", "\0")
# Of errors by torch, only those of memory and of the kinds that a schema declares.
REFUSALS = (
    *("allocate", "out of memory", "Storage size calculation overflowed", "multiplication overflow", "numel"),
    *("Expected a value of type", "Could not run", "Overflow when unpacking", "no tensor arguments"),
)
# Torch names tensors of different devices and types in one product by itself.
MIXTURES = ("is not on the expected device", "expected scalar type", "expected m1 and m2 to have the same dtype")
# The last parents of the saved state of EM are padding, which no result depends on.
PADDED = {("em_routing", 2)}
MEMORY = 2**28
POSES: tuple[tuple[PoseKind, int], ...] = (("matrix", 16), ("vector", 8))


def operator_names() -> list[str]:
    """Names of all operators of torchcaps, with those of backward passes."""
    names = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("torchcaps::"))
    return sorted({name.removeprefix("torchcaps::").partition(".")[0] for name in names})


class Recorder(TorchDispatchMode):
    """Keep the arguments of each call of an operator of torchcaps."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Arguments]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "torchcaps":
            self.calls.setdefault(func._opname, []).append([_copy(arg) for arg in args])
        return func(*args, **(kwargs or {}))


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return [_copy(each) for each in value] if isinstance(value, list | tuple) else value


def layer_calls() -> Iterator[tuple[str, Callable[[], Capsules]]]:
    """A small layer of every router and backend, with a name that tells them apart."""
    flat = Capsules(torch.randn(3, 5, 4, requires_grad=True), torch.rand(3, 5, requires_grad=True))
    grid = Capsules(torch.randn(3, 5, 6, 2, 16, requires_grad=True), torch.rand(3, 5, 6, 2, requires_grad=True))
    for name in list_routers():
        for backend in make_router(name).contract.backends:
            options: dict[str, Any] = {"routing": name, "backend": backend}
            for in_caps in (5, None):
                layer = CapsLinear(in_caps, 7, 4, 8, **options)
                yield f"route-{name}-{backend}", lambda layer=layer: layer(flat)
                # As where the parents are divided over processes.
                params = {**layer.routing.params(flat), "softmax": ops.parent_softmax, "backend": backend}
                yield (
                    f"route-{name}-{backend}",
                    lambda layer=layer, params=params: ops.route(flat, layer.weight, layer.routing.algorithm, **params),
                )
            for pose, dim in POSES:
                conv = CapsConv2d(2, 7, (3, 2), 2, dims=(16, dim), pose=pose, **options)
                yield f"route_conv-{name}-{backend}", lambda conv=conv: conv(grid)


def record_operators() -> dict[str, list[Arguments]]:
    """Valid arguments of every operator that a layer calls, forward and backward."""
    recorder = Recorder()
    with recorder:
        for _, call in layer_calls():
            try:
                poses, activations = call()
            except TorchcapsError:
                # No such kernel for this layer, or no device for it.
                continue
            (poses.square().sum() + activations.square().sum()).backward()
    return recorder.calls


def make_arguments(name: str) -> list[Arguments]:
    """Arguments of an operator that no layer calls here, by the kinds of its schema."""
    schema = getattr(torch.ops.torchcaps, name).default._schema
    examples = {
        "Tensor": torch.randn(3, 5, 4),
        "Optional[Tensor]": None,
        "int": 2,
        "bool": True,
        "float": 0.5,
        "str": "dynamic",
        "List[Tensor]": [torch.randn(3, 5, 4)],
        "List[int]": [2, 2],
        "List[bool]": [True],
        "List[float]": [0.5],
    }
    weight = torch.randn(5, 7, 4, 8)
    return [
        [weight if argument.name == "weight" else examples[str(argument.type)] for argument in schema.arguments],
        [examples[str(argument.type)] for argument in schema.arguments],
    ]


def record_routings() -> dict[str, list[tuple[Callable[..., Any], Arguments]]]:
    """Calls of `ops.route` and `ops.route_conv` as functions of their tensors."""
    found: dict[str, list[tuple[Callable[..., Any], Arguments]]] = {}
    for label, layer in layer_calls():
        name = label.partition("-")[0]
        original = getattr(ops, name)

        def keep(*args: Any, label: str = label, original: Any = original, **params: Any) -> Any:
            result = original(*args, **params)
            children, weight, *rest = args
            keys = [key for key, value in params.items() if isinstance(value, Tensor)]

            def call(poses: Any, activations: Any, weight: Any, *tensors: Any) -> Any:
                changed = {**params, **dict(zip(keys, tensors, strict=True))}
                return original(Capsules(poses, activations), weight, *rest, **changed)

            tensors = [*children, weight, *(params[key] for key in keys)]
            found.setdefault(label, []).append((call, [_copy(tensor) for tensor in tensors]))
            return result

        with mock.patch.object(ops, name, keep):
            try:
                layer()
            except TorchcapsError:
                continue
    return found


# Changes of a tensor; each raises a RuntimeError where torch itself cannot make such a tensor.


def _resized(tensor: Tensor, axis: int, size: int) -> Tensor:
    """The tensor with another size of an axis, without memory for it."""
    if size <= tensor.shape[axis]:
        return tensor.narrow(axis, 0, size)
    one = tensor.narrow(axis, 0, 1) if tensor.shape[axis] else tensor.new_zeros(_with(tensor.shape, axis, 1))
    return one.expand(_with(tensor.shape, axis, size))


def _with(shape: Sequence[int], axis: int, size: int) -> list[int]:
    return [*shape[:axis], size, *shape[axis + 1 :]]


def _misaligned(tensor: Tensor) -> Tensor:
    storage = tensor.new_empty(tensor.numel() + 1)
    storage[1:] = tensor.flatten()
    return storage[1:].view(tensor.shape)


def _strided(tensor: Tensor) -> Tensor:
    """A copy with 2^16 values between neighbours of the last axis that is not too long."""
    axis = max((k for k in range(tensor.dim()) if 1 < tensor.shape[k] <= 64), default=None)
    if axis is None:
        return tensor
    wide = tensor.new_zeros(_with(tensor.shape, axis, 1)).unsqueeze(0).expand(1, *_with(tensor.shape, axis, 1))
    strides = [1] * tensor.dim()
    strides[axis] = 2**16
    room = torch.zeros(2**16 * tensor.shape[axis] + wide.numel(), dtype=tensor.dtype)
    place = 1
    for k in reversed(range(tensor.dim())):
        if k != axis:
            strides[k] = place
            place *= tensor.shape[k]
    return torch.as_strided(room, tensor.shape, strides).copy_(tensor)


TENSOR_CHANGES: dict[str, Callable[[Tensor, random.Random], Any]] = {
    "type": lambda tensor, draw: tensor.to(draw.choice(DTYPES)),
    "meta": lambda tensor, draw: tensor.to("meta"),
    "no axes": lambda tensor, draw: tensor.flatten()[:1].squeeze(),
    "flat": lambda tensor, draw: tensor.flatten(),
    "more axes": lambda tensor, draw: tensor[None],
    "misaligned": lambda tensor, draw: _misaligned(tensor),
    "far apart": lambda tensor, draw: _strided(tensor),
    "reversed": lambda tensor, draw: tensor.permute(*reversed(range(tensor.dim()))),
    "stride 0": lambda tensor, draw: tensor.flatten()[:1].squeeze().expand(tensor.shape),
    "not finite": lambda tensor, draw: tensor * draw.choice(FLOATS[-2:]),
    "huge values": lambda tensor, draw: tensor * 1e30,
    "zeros": lambda tensor, draw: torch.zeros_like(tensor),
    "sparse": lambda tensor, draw: tensor.to_sparse(),
    "None": lambda tensor, draw: None,
    "list": lambda tensor, draw: [tensor],
}


# Of functions, annotations declare the kinds of arguments; torch does not hold operators to them.
OF_OPERATORS = ("sparse", "None", "list")


class Changes:
    """Random changes of arguments.

    Args:
        seed: Seed of the choices.
        sizes: New sizes of axes.
        kinds: Names of `TENSOR_CHANGES`.
    """

    def __init__(self, seed: int, sizes: Sequence[int], kinds: Sequence[str]) -> None:
        self.draw = random.Random(seed)
        self.sizes = sizes
        self.kinds = kinds

    def apply(self, args: Arguments) -> str:
        """Change the arguments in place, and describe the changes."""
        return "; ".join(self._change(args) for _ in range(self.draw.choice((1, 1, 2, 3))))

    def _change(self, args: Arguments) -> str:
        if self.draw.random() < 0.3:
            return self._resize_all(args)
        k = self.draw.randrange(len(args))
        args[k], what = self._changed(args[k])
        return f"{k}: {what}"

    def _changed(self, value: Any) -> tuple[Any, str]:
        draw = self.draw
        if isinstance(value, Tensor):
            return self._changed_tensor(value)
        if isinstance(value, list):
            return self._changed_list(value)
        if isinstance(value, bool):
            value = not value
        elif isinstance(value, int | float | str):
            value = draw.choice({int: INTEGERS, float: FLOATS, str: TEXTS}[type(value)])
        else:
            value = draw.choice([torch.randn(2, 7), None, 1])
        return value, "tensor" if isinstance(value, Tensor) else repr(value)

    def _changed_tensor(self, tensor: Tensor) -> tuple[Any, str]:
        draw = self.draw
        if tensor.dim() and draw.random() < 0.4:
            axis, size = draw.randrange(tensor.dim()), draw.choice(self.sizes)
            return _resized(tensor, axis, size), f"{size} along axis {axis}"
        kind = draw.choice(self.kinds)
        return TENSOR_CHANGES[kind](tensor, draw), kind

    def _changed_list(self, values: list[Any]) -> tuple[Any, str]:
        kind = self.draw.choice(("less", "more", "empty", "entry")) if values else "empty"
        if kind == "entry":
            k = self.draw.randrange(len(values))
            value, what = self._changed(values[k])
            return [*values[:k], value, *values[k + 1 :]], f"entry {k}: {what}"
        return {"less": values[:-1], "more": [*values, *values[-1:]], "empty": []}[kind], kind

    def _resize_all(self, args: Arguments) -> str:
        """Replace one size wherever it occurs, so that the tensors still belong together."""
        values = [each for value in args for each in (value if isinstance(value, list) else [value])]
        sizes = [size for value in values if isinstance(value, Tensor) for size in value.shape]
        if not sizes:
            return "no sizes"
        old, new = self.draw.choice(sizes), self.draw.choice(self.sizes)

        def resize(value: Any) -> Any:
            if isinstance(value, list):
                return [resize(each) for each in value]
            for axis, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
                if size == old:
                    value = _resized(value, axis, new)
            return value

        args[:] = [resize(value) for value in args]
        return f"size {old} -> {new}"


@contextmanager
def filled(value: float) -> Iterator[None]:
    """Fill new memory, so that results that depend on it differ."""

    def fill(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def filling(*args: Any, **options: Any) -> Tensor:
            made = make(*args, **options)
            return made.fill_(value) if made.dtype.is_floating_point and made.device.type == "cpu" else made

        return filling

    with (
        mock.patch.object(Tensor, "new_empty", fill(Tensor.new_empty)),
        mock.patch.object(torch, "empty", fill(torch.empty)),
        mock.patch.object(torch, "empty_like", fill(torch.empty_like)),
    ):
        yield


def outcome(name: str, call: Callable[..., Any], args: Arguments) -> str | None:
    """Return what is wrong with a call, or None; count nothing else."""
    results = []
    try:
        for value in (float("nan"), 7.0):
            with filled(value), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = call(*args)
            results.append([out] if isinstance(out, Tensor) else list(out))
    except (TorchcapsError, MemoryError):
        return None
    except (RuntimeError, TypeError, NotImplementedError) as error:
        known = any(word in str(error) for word in (*REFUSALS, *(MIXTURES if name.startswith("route") else ())))
        return None if known else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for k, (one, other) in enumerate(zip(*results, strict=True)):
        if (name, k) in PADDED or one.device.type == "meta":
            continue
        if not torch.equal(one.nan_to_num(1.5), other.nan_to_num(1.5)):
            return f"output {k} depends on uninitialised memory"
    return None


def limit_memory() -> None:
    """Refuse allocations beyond 256 MB in all. AddressSanitizer has a limit of its own, in ASAN_OPTIONS."""
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


def examples_of(names: Sequence[str]) -> dict[str, list[tuple[Callable[..., Any], Arguments]]]:
    """Valid calls of operators, or of routings by the names of `layer_calls`."""
    operators = operator_names()
    recorded = record_operators() if set(names) & set(operators) else {}
    routings = record_routings() if set(names) - set(operators) else {}
    found = {}
    for name in names:
        if name in operators:
            call = getattr(torch.ops.torchcaps, name).default
            found[name] = [(call, arguments) for arguments in recorded.get(name) or make_arguments(name)]
        else:
            found[name] = routings.get(name, [])
    return found


def try_calls(name: str, examples: Sequence[tuple[Callable[..., Any], Arguments]], count: int, seed: int) -> int:
    """Make a number of changed calls, and return how many of them are wrong."""
    is_operator = name in operator_names()
    kinds = [kind for kind in TENSOR_CHANGES if is_operator or kind not in OF_OPERATORS]
    changes = Changes(seed, SIZES if is_operator else SMALL_SIZES, kinds)
    found = 0
    for _ in range(count if examples else 0):
        call, valid = changes.draw.choice(examples)
        given = [_copy(value) for value in valid]
        try:
            made = changes.apply(given)
        except (RuntimeError, TypeError, IndexError):
            # Torch itself has no such tensor.
            continue
        print(f"{name}: {made}", flush=True)
        wrong = outcome(name, call, given)
        if wrong is not None:
            print(f"FOUND {name}: {made}: {wrong}", flush=True)
            found += 1
    return found


def main() -> int:
    """Make the calls; 1 if one of them is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operators, route-ROUTER-BACKEND, route_conv-ROUTER-BACKEND")
    parser.add_argument("--calls", type=int, default=400, help="calls of each (default: 400)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    examples = examples_of(args.names or operator_names())
    limit_memory()
    found = sum(try_calls(name, calls, args.calls, args.seed) for name, calls in examples.items())
    print(f"{len(examples)} operators, {found} wrong calls")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
