"""Weights as safetensors files, which cannot execute code when they are loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from torchcaps._files import MAX_TENSORS, open_regular, write_bytes
from torchcaps._registry import nearest
from torchcaps.errors import CheckpointError

Model = TypeVar("Model", bound=nn.Module)
# Key of our entry in the metadata of a safetensors file.
KEY = "torchcaps"


def save_weights(
    weights: nn.Module | Mapping[str, Tensor],
    path: str | Path,
    *,
    temperature: float | None = None,
    description: Mapping[str, Any] | None = None,
) -> None:
    """Write the weights of a model to a safetensors file. An existing file is replaced atomically.

    Args:
        weights: A model, or a state dict.
        path: File to write.
        temperature: Temperature of the class probabilities, written into the metadata of the file. Default: that of
            the model.
        description: What else the metadata of the file says, as values of JSON; see `ModelDescription`.

    Shape:
        Tensors of any shape.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> save_weights(nn.Linear(2, 1), file)
        >>> load_weights(nn.Linear(2, 1), file).weight.shape
        torch.Size([1, 2])
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    # Copies, because safetensors refuses tensors that share memory.
    state = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    temperature = getattr(weights, "temperature", None) if temperature is None else temperature
    entries = {**(description or {}), **({} if temperature is None else {"temperature": float(temperature)})}
    # One key: safetensors writes several of them in random order, and equal runs have equal files.
    write_bytes(path, save(state, {KEY: json.dumps(entries, sort_keys=True)} if entries else None))


def load_weights(model: Model, path: str | Path) -> Model:
    """Load the weights of a safetensors file into a model.

    Weights that are stored in half precision are converted to the type of the model's parameters. The temperature of
    the file becomes that of the model, None if the file has none.

    Args:
        model: The model, which is changed in place.
        path: File to read.

    Returns:
        The model.

    Raises:
        CheckpointError: If the file cannot be read, or a name or shape differs from the model's.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> save_weights(nn.Linear(2, 1), file)
        >>> load_weights(nn.Linear(2, 1), file)
        Linear(in_features=2, out_features=1, bias=True)
    """
    check_weights(model, path)
    try:
        temperature = _temperature(path)
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"weights: expected a safetensors file, got '{path}' ({error})") from None
    with _opened(path) as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model.load_state_dict(state)
    if hasattr(model, "temperature"):
        model.temperature = temperature  # pyright: ignore[reportArgumentType]
    return model


def check_weights(model: nn.Module, path: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
    """Compare names and shapes in a safetensors file with those of a model, without reading a tensor.

    Args:
        model: The model; it may be on the meta device.
        path: The file.
        shapes: Shape of each tensor in a file of another kind. Default: those of the safetensors file.

    Raises:
        CheckpointError: If the file cannot be read, or a name or shape differs from the model's.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> save_weights(nn.Linear(2, 1), file)
        >>> check_weights(nn.Linear(2, 1, device="meta"), file)
    """
    if shapes is None:
        with _opened(path) as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    problems = [f"no '{name}'" for name in expected if name not in shapes]
    problems += [f"unknown '{name}'{nearest(name, expected)}" for name in shapes if name not in expected]
    problems += [
        f"'{name}' is {shapes[name]}, not {shape}"
        for name, shape in expected.items()
        if name in shapes and shapes[name] != shape
    ]
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise CheckpointError(f"weights: expected the weights of {type(model).__name__}, got '{path}' ({shown})")


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Return what `save_weights` wrote into the metadata of a file, empty if there is nothing.

    Args:
        path: A safetensors file.

    Returns:
        The temperature and the description, as values of JSON.

    Raises:
        ValueError: If the metadata are no JSON object.
    """
    with _opened(path) as file:
        stored = (file.metadata() or {}).get(KEY)
    entries = {} if stored is None else json.loads(stored)
    if not isinstance(entries, dict):
        raise ValueError(f"metadata {stored!r:.80}")
    return entries


def _temperature(path: str | Path) -> float | None:
    stored = read_metadata(path).get("temperature")
    temperature = None if stored is None else float(stored)
    if temperature is not None and not 0 < temperature < math.inf:
        raise ValueError(f"temperature {stored}")
    return temperature


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    try:
        # The library would wait for the writer of a pipe.
        open_regular(path, MAX_TENSORS).close()
        with safe_open(path, "pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"weights: expected a safetensors file, got '{path}' ({error})") from None
