"""The compiled library: loading, ABI check, calls of its kernels, and custom operators made of them."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import torchcaps
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._flops import Cost, register_flops
from torchcaps.ops._kernel import Kernel, supports_all
from torchcaps.types import Capsules

# CMake names modules .so on Linux and macOS.
LIBRARY = "_kernels.dll" if sys.platform == "win32" else "_kernels.so"
# The interface that this module is written for: kAbiVersion in csrc/common/c_api.h.
ABI_VERSION = 5
REMEDY = (
    "install a C++17 compiler (GCC or Clang; on Windows, Clang of Visual Studio), then run "
    "`pip install --no-cache-dir --force-reinstall --no-deps torchcaps`"
)
logger = logging.getLogger(__name__)
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
# The type that the kernels compute each type in.
_COMPUTE_DTYPE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
_OUT_OF_MEMORY = 1
# The tensors whose product is the votes.
_MULTIPLIED = ("poses", "weight")
# tensors, their number, sizes, their number, threads, buffer for the message, its size
_ARGTYPES = [
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_char_p,
    ctypes.c_int64,
]


def load(folders: Sequence[str]) -> tuple[ctypes.CDLL | None, str]:
    """Load the library from the first folder that has it.

    Args:
        folders: Folders to search, in order.

    Returns:
        The library and its instruction set, or None and the reason why it cannot be used.
    """
    path = next((path for path in (Path(folder) / LIBRARY for folder in folders) if path.is_file()), None)
    if path is None:
        return None, f"the CPU kernels are not built; {REMEDY}"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"the library of CPU kernels does not load: {error}; {REMEDY}"
    version = library.torchcaps_abi_version() if hasattr(library, "torchcaps_abi_version") else 1
    if version != ABI_VERSION:
        return None, f"the library of CPU kernels is stale: expected ABI version {ABI_VERSION}, got {version}; {REMEDY}"
    library.torchcaps_instruction_set.restype = ctypes.c_char_p
    detail = library.torchcaps_instruction_set().decode()
    logger.debug("CPU kernels: %s, %s", detail, path)
    return library, detail


# TORCHCAPS_LIBRARY names the folder of another build, such as one with sanitizers. An editable installation has two
# folders: the sources, and the one that the build writes to.
_library, _detail = load([folder] if (folder := os.environ.get("TORCHCAPS_LIBRARY")) else list(torchcaps.__path__))


def missing_reason() -> str | None:
    """Return why the library is not loaded, with the remedy, or None where it is."""
    return _detail if _library is None else None


def unavailable(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why the kernels cannot compute tensors of a device and type, with the remedy, or None where they can."""
    if _library is None:
        return _detail
    if device.type != "cpu":
        return f"it computes on the CPU, got tensors on {device.type}; use backend='auto'"
    if dtype not in _COMPUTE_DTYPE:
        return f"it computes floating-point types of 16 to 64 bits, got {dtype}; use backend='reference'"
    return None


def instruction_set() -> str:
    """Return the instruction set in use: `avx512`, `avx2` or `portable`."""
    return _detail


def cpu_kernel(
    dense: Callable[..., Capsules] | None = None,
    conv: Callable[..., Capsules] | None = None,
    unsupported: Callable[..., str | None] = supports_all,
) -> Kernel:
    """Return the kernel of the backend `cpu`, whose functions call the library; see `Kernel`."""
    return Kernel(
        "cpu", dense=dense, conv=conv, unavailable=unavailable, unsupported=unsupported, describe=instruction_set
    )


def lanes(dtype: torch.dtype) -> int:
    """Return how many values of a type a vector holds."""
    return int(_loaded().torchcaps_vector_bytes()) // dtype.itemsize


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type that a type is computed in: float32 for 16 bits, otherwise the type itself.

    Args:
        dtype: Type of the tensors.

    Returns:
        Type of the computation.

    Raises:
        ConfigError: If the kernels do not compute it.
    """
    if dtype not in _COMPUTE_DTYPE:
        raise ConfigError(f"dtype: expected a floating-point type of 16 to 64 bits, got {dtype}")
    return _COMPUTE_DTYPE[dtype]


@functools.cache
def _entry(library: ctypes.CDLL, name: str) -> Any:
    """Return an entry of the library with its argument types."""
    if not hasattr(library, name):
        raise RuntimeError(f"name: expected an entry of the library of CPU kernels, got '{name}'")
    function = getattr(library, name)
    function.argtypes, function.restype = _ARGTYPES, ctypes.c_int
    return function


def call(name: str, tensors: Sequence[Tensor | None], sizes: Sequence[int]) -> None:
    """Call a kernel with contiguous tensors of one type, with as many threads as torch uses.

    Args:
        name: Name of an entry of the library without prefix and type, such as `dynamic_forward`.
        tensors: Inputs, then outputs; None becomes a null pointer. The first is not None.
        sizes: Sizes and options as integers.

    Raises:
        ConfigError: If the library is not available.
        MemoryError: If the kernel cannot allocate its workspace.
        RuntimeError: If the kernel fails for any other reason.
    """
    assert tensors[0] is not None
    function = _entry(_loaded(), f"torchcaps_{name}_{_SUFFIX[tensors[0].dtype]}")
    pointers = (ctypes.c_void_p * len(tensors))(*(None if tensor is None else tensor.data_ptr() for tensor in tensors))
    message = ctypes.create_string_buffer(256)
    status = function(
        pointers,
        len(tensors),
        (ctypes.c_int64 * len(sizes))(*sizes),
        len(sizes),
        torch.get_num_threads(),
        message,
        len(message),
    )
    if status:
        raise (MemoryError if status == _OUT_OF_MEMORY else RuntimeError)(message.value.decode())


Shape = Sequence[int]
Arguments = Sequence[Any]


def native_op(
    name: str,
    schema: str,
    *,
    check: Callable[..., None],
    shapes: Callable[..., Sequence[Shape]],
    forward: Callable[[Arguments, Sequence[Tensor]], None],
    backward: Callable[[Arguments, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor | None]], None],
    cost: Callable[..., Cost],
    saved: Sequence[int] = (),
    differentiable: int | None = None,
    all_gradients: bool = False,
    backend: str = "cpu",
) -> Callable[..., Any]:
    """Make a differentiable custom operator `torchcaps::<name>` of a kernel.

    The operator checks its arguments, so that direct calls through `torch.ops.torchcaps` cannot read out of bounds,
    passes contiguous tensors to the kernel, and has shapes for `torch.compile`. `torchcaps::<name>_backward` computes
    its gradients; the gradient of a gradient is an error.

    Args:
        name: Name without namespace.
        schema: Schema of the operator: tensors first, then numbers. All tensors have one device and, for `cpu`, one
            type.
        check: Raises an error unless the arguments belong together.
        shapes: Returns the shapes of all outputs.
        forward: `(arguments, outputs)`: computes the outputs.
        backward: `(arguments, saved outputs, gradients of the outputs, gradients of the inputs)`: computes the latter,
            of which those that are not needed are None.
        cost: Returns what the operator computes, for `FlopCounterMode`.
        saved: Indices of the outputs that the backward pass reads.
        differentiable: Number of leading tensors with a gradient, all by default.
        all_gradients: The kernel always computes all gradients.
        backend: Backend that the operator belongs to. Those of `cpu` run there alone, in the type of their tensors.
            Others run everywhere and have outputs of at least 32 bits.

    Returns:
        The operator.
    """
    arguments = [part.split() for part in schema[1 : schema.index(")")].split(", ")]
    names = [argument for kind, argument in arguments if kind.startswith("Tensor")]
    optional = [argument for kind, argument in arguments if kind == "Tensor?"]
    numbers = ", ".join(" ".join(part) for part in arguments[len(names) :])
    count = len(names)
    gradients = count if differentiable is None else differentiable
    single = schema.rpartition("->")[2].strip() == "Tensor"
    mixed = backend != "cpu"

    def prepare(args: Arguments) -> list[Tensor]:
        check_present(names, args[:count], optional)
        check_alike(names, args[:count], mixed)
        check(*args)
        like = args[0].new_empty(0, dtype=sum_dtype(args[:count])) if mixed else args[0]
        return [_allocate(like, shape) for shape in shapes(*args)]

    def run_forward(*args: Any) -> Any:
        outputs = prepare(args)
        # Of an empty batch there is nothing to compute, however large its other axes are.
        if _any_values(outputs):
            forward([*_contiguous(args[:count]), *args[count:]], outputs)
        return outputs[0] if single else tuple(outputs)

    def fake_forward(*args: Any) -> Any:
        outputs = prepare(args)
        return outputs[0] if single else tuple(outputs)

    def prepare_backward(args: Arguments) -> tuple[list[Any], list[Tensor]]:
        tensors, present, kept, grads, *rest, needed = args
        _check_lists(names, optional, gradients, tensors, present, needed)
        found = iter(tensors)
        inputs: list[Any] = [next(found) if there else None for there in present]
        check_alike(names, inputs, mixed)
        check(*inputs, *rest)
        expected = shapes(*inputs, *rest)
        for label, given, wanted in (("saved", kept, [expected[k] for k in saved]), ("grads", grads, expected)):
            check_alike([label] * (len(given) + 1), [inputs[0], *given], mixed)
            if [tuple(tensor.shape) for tensor in given] != [tuple(shape) for shape in wanted]:
                got = [tuple(tensor.shape) for tensor in given]
                raise ShapeError(f"{label}: expected {[tuple(shape) for shape in wanted]}, got {got}")
        made = [tensor if all_gradients or need else None for tensor, need in zip(inputs, needed, strict=False)]
        return [*inputs, *rest], _allocate_gradients(inputs[0], made)

    def run_backward(*args: Any) -> list[Tensor]:
        inputs, outputs = prepare_backward(args)
        kept, grads, needed = args[2], args[3], args[-1]
        results = [
            output if (all_gradients or need) and tensor is not None else None
            for output, tensor, need in zip(outputs, inputs, needed, strict=False)
        ]
        if _any_values(grads):
            backward([*_contiguous(inputs[:count]), *inputs[count:]], _contiguous(kept), _contiguous(grads), results)
        else:
            for output in outputs:
                output.zero_()
        return outputs

    def fake_backward(*args: Any) -> list[Tensor]:
        return prepare_backward(args)[1]

    def setup_context(ctx: Any, inputs: Arguments, output: Any) -> None:
        ctx.present = [tensor is not None for tensor in inputs[:count]]
        ctx.numbers = inputs[count:]
        given = [tensor for tensor in inputs[:count] if tensor is not None]
        ctx.save_for_backward(*given, *(output[k] for k in saved))

    def differentiate(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors, given = list(ctx.saved_tensors), sum(ctx.present)
        needed = list(ctx.needs_input_grad[:gradients])
        outputs = backward_op(tensors[:given], ctx.present, tensors[given:], list(grads), *ctx.numbers, needed)
        found = [grad if need else None for grad, need in zip(outputs, needed, strict=True)]
        return (*found, *[None] * (len(arguments) - gradients))

    def count_backward(tensors: list[Tensor], present: list[bool], kept: Any, grads: Any, *rest: Any) -> int:
        *numbers, needed = rest
        found = iter(tensors)
        inputs = [next(found) if there else None for there in present]
        products = [all_gradients or need for key, need in zip(names, needed, strict=False) if key in _MULTIPLIED]
        return cost(*inputs, *numbers).gradients(sum(products))

    backward_schema = (
        f"(Tensor[] tensors, bool[] present, Tensor[] saved, Tensor[] grads, {numbers + ', ' if numbers else ''}"
        "bool[] needed) -> Tensor[]"
    )
    make = functools.partial(torch.library.custom_op, mutates_args=(), device_types=None if mixed else "cpu")
    forward_op = make(f"torchcaps::{name}", run_forward, schema=schema)
    backward_op = make(f"torchcaps::{name}_backward", run_backward, schema=backward_schema)
    forward_op.register_fake(fake_forward)
    backward_op.register_fake(fake_backward)
    forward_op.register_autograd(differentiate, setup_context=setup_context)
    backward_op.register_autograd(functools.partial(_refuse_second_derivative, backend))
    register_flops(name, lambda *args: cost(*args).votes * cost(*args).forward)
    register_flops(f"{name}_backward", count_backward)
    return forward_op


def check_shape(name: str, tensor: Tensor | None, shape: Shape) -> None:
    """Raise ShapeError unless a tensor, if there is one, has a shape."""
    if tensor is not None and tuple(tensor.shape) != tuple(shape):
        raise ShapeError(f"{name}: expected {tuple(shape)}, got {tuple(tensor.shape)}")


def check_present(names: Sequence[str], tensors: Sequence[Tensor | None], optional: Sequence[str] = ()) -> None:
    """Raise ConfigError if a tensor that is not optional is None, which torch passes on whatever the schema says."""
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is None and name not in optional:
            raise ConfigError(f"{name}: expected a tensor, got None")


def _check_lists(
    names: Sequence[str],
    optional: Sequence[str],
    gradients: int,
    tensors: Sequence[Tensor],
    present: Sequence[bool],
    needed: Sequence[bool],
) -> None:
    """Raise ConfigError unless the lists of a backward operator name all tensors that are not optional."""
    if len(present) != len(names):
        raise ConfigError(f"present: expected {len(names)} values, got {len(present)}")
    for name, there in zip(names, present, strict=True):
        if not there and name not in optional:
            raise ConfigError(f"present: expected True for {name}, got False")
    if len(tensors) != sum(present):
        raise ConfigError(f"tensors: expected {sum(present)} tensors, as many as are present, got {len(tensors)}")
    if len(needed) != gradients:
        raise ConfigError(f"needed: expected {gradients} values, got {len(needed)}")


def sum_dtype(tensors: Sequence[Tensor | None]) -> torch.dtype:
    """Return the type that sums of tensors are kept in: what they promote to, of at least 32 bits."""
    dtypes = [tensor.dtype for tensor in tensors if tensor is not None]
    return functools.reduce(torch.promote_types, dtypes, torch.float32)


def check_alike(names: Sequence[str], tensors: Sequence[Tensor | None], mixed: bool = False) -> None:
    """Raise ConfigError unless all tensors have the device and type of the first, float32 or float64.

    Tensors of mixed types have 16 to 64 bits each.
    """
    first = tensors[0]
    assert first is not None
    if first.dtype not in _SUFFIX and not mixed:
        raise ConfigError(f"{names[0]}: expected float32 or float64, got {first.dtype}")
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is None:
            continue
        if tensor.device != first.device:
            raise ConfigError(f"{name}: expected a tensor on {first.device} like {names[0]}, got {tensor.device}")
        if mixed and tensor.dtype not in _COMPUTE_DTYPE:
            raise ConfigError(f"{name}: expected a floating-point type of 16 to 64 bits, got {tensor.dtype}")
        if not mixed and tensor.dtype != first.dtype:
            raise ConfigError(f"{name}: expected {first.dtype} like {names[0]}, got {tensor.dtype}")


def _allocate(like: Tensor, shape: Shape) -> Tensor:
    """Allocate an output of a kernel, which overwrites all of it."""
    return like.new_empty(shape)


def _allocate_gradients(like: Tensor, tensors: Sequence[Tensor | None]) -> list[Tensor]:
    """Allocate a gradient for each tensor, empty for None.

    The largest come first: they take the memory that gradients of an earlier pass left, before smaller ones divide it.
    """
    counts = [0 if tensor is None else tensor.numel() for tensor in tensors]
    # To compare symbols of `torch.compile` would fix the sizes.
    sizes = [count if isinstance(count, int) else 0 for count in counts]
    made: dict[int, Tensor] = {}
    for k in sorted(range(len(tensors)), key=lambda k: sizes[k], reverse=True):
        tensor = tensors[k]
        made[k] = _allocate(like, (0,)) if tensor is None else _allocate(tensor, tensor.shape)
    return [made[k] for k in range(len(tensors))]


def _any_values(tensors: Sequence[Tensor]) -> bool:
    return any(tensor.numel() for tensor in tensors)


def _contiguous(tensors: Sequence[Tensor | None]) -> list[Any]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def _refuse_second_derivative(backend: str, ctx: Any, *grads: Tensor) -> None:
    """Raise ConfigError: the backward function of backward passes, which have no derivative."""
    raise ConfigError(
        f"backend: expected 'reference' for the gradient of a gradient, got '{backend}' (first derivatives only)"
    )


def _loaded() -> ctypes.CDLL:
    if _library is None:
        raise ConfigError(f"backend: expected one that is available, got 'cpu' ({_detail})")
    return _library
