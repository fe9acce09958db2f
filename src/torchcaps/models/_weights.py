"""Weights as safetensors: a file of numbers that can run no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from torchcaps._registry import nearest
from torchcaps.errors import CheckpointError

Model = TypeVar("Model", bound=nn.Module)


def save_weights(weights: nn.Module | Mapping[str, Tensor], path: str | Path) -> None:
    """Write a model's weights, or a state dict, as safetensors; a file that was there is replaced in one move.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> save_weights(nn.Linear(2, 1), file)
    >>> load_weights(nn.Linear(2, 1), file).weight.shape
    torch.Size([1, 2])
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    # Copies, because safetensors refuses tensors that share memory.
    state = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(save(state))
    part.replace(path)


def load_weights(model: Model, path: str | Path) -> Model:
    """Put the weights of a safetensors file into a model, which is returned; all must fit, by name and shape.

    Numbers that are stored in half precision become those of the model's own.
    """
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"weights: expected a safetensors file, got '{path}' ({error})") from None
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    problems = [f"no '{name}'" for name in wanted if name not in found]
    problems += [f"unknown '{name}'{nearest(name, wanted)}" for name in found if name not in wanted]
    problems += [
        f"'{name}' is {tuple(found[name].shape)}, not {shape}"
        for name, shape in wanted.items()
        if name in found and tuple(found[name].shape) != shape
    ]
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise CheckpointError(f"weights: expected those of {type(model).__name__}, got '{path}' ({shown})")
    model.load_state_dict(found)
    return model
