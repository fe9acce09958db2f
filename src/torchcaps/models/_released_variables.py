"""The parameters of the released network under the names and in the layouts of the authors' program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError, ShapeError

KERNEL = 3


class Variable(NamedTuple):
    """How a variable of the program is laid out: `parameter.reshape(split).permute(order).reshape(shape)`.

    Args:
        parameter: Path of the parameter here.
        split: Shape of the parameter with an axis for each index.
        order: Order of these axes in the program.
        shape: Shape of the variable.
    """

    parameter: str
    split: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def export(self, value: Tensor) -> Tensor:
        """Return a parameter, or its gradient, in the layout of the program."""
        return value.reshape(self.split).permute(self.order).reshape(self.shape)

    def load(self, value: Tensor, like: Tensor) -> Tensor:
        """Return a variable in the layout, type and device of the parameter `like`."""
        value = value.to(like).reshape([self.split[axis] for axis in self.order])
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return value.permute(back).reshape(like.shape)


def layouts(model: nn.Module) -> dict[str, Variable]:
    """Return the layout of each variable of the program by its name.

    Args:
        model: A `ReleasedMatrixCapsNet`.

    Returns:
        The layouts.
    """
    parameters = dict(model.named_parameters())

    def conv(parameter: str) -> Variable:
        out, channels, rows, columns = parameters[parameter].shape
        return Variable(parameter, (out, channels, rows, columns), (2, 3, 1, 0), (rows, columns, channels, out))

    def vector(parameter: str, *ones: int) -> Variable:
        size = parameters[parameter].numel()
        before, after = ones or (0, 0)
        return Variable(parameter, (size,), (0,), (1,) * before + (size,) + (1,) * after)

    found = {
        "conv1/weights": conv("stem.1.weight"),
        "conv1/biases": vector("stem.1.bias"),
        "conv_capsule1/weights": conv("primary.poses.weight"),
        "conv_capsule1/conv_capsule1_act/weights": conv("primary.activations.weight"),
    }
    for name, layer in (("convCaps0", "lower"), ("convCaps1", "upper")):
        children, parents = parameters[f"{layer}.weight"].shape[:2]
        types = children // KERNEL**2
        split = (KERNEL, KERNEL, types, parents, 4, 4)
        shape = (types, KERNEL, KERNEL, 4, 4 * parents)
        found[f"{name}/weights"] = Variable(f"{layer}.weight", split, (2, 0, 1, 4, 5, 3), shape)
        for bias in ("activation_biases", "sigma_biases"):
            found[f"{name}/{bias}"] = vector(f"{layer}.routing.{bias}", 2, 5)
    types, classes = parameters["head.weight"].shape[:2]
    found["capsule2/weights"] = Variable("head.weight", (types, classes, 4, 4), (0, 2, 3, 1), (types, 4, 4 * classes))
    for bias in ("activation_biases", "sigma_biases"):
        found[f"capsule2/{bias}"] = vector(f"head.routing.{bias}", 2, 3)
    return found


def check_variables(variables: Mapping[str, Any], expected: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return variables as tensors; raise unless they are those expected, with their shapes and finite values.

    Args:
        variables: Arrays by name.
        expected: Shapes by name.

    Returns:
        The tensors by name.

    Raises:
        ConfigError: If one is missing, unknown or not finite.
        ShapeError: If one has another shape.
    """
    if variables.keys() != expected.keys():
        missing = sorted(expected.keys() - variables.keys())
        unknown = sorted(map(str, variables.keys() - expected.keys()))
        raise ConfigError(
            f"variables: expected {', '.join(expected)}, got {len(variables)} (missing: {', '.join(missing) or 'none'};"
            f" unknown: {', '.join(unknown) or 'none'})"
        )
    tensors = {name: torch.as_tensor(variables[name]) for name in expected}
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != tuple(shape):
            raise ShapeError(f"variables: expected {tuple(shape)} for '{name}', got {tuple(tensors[name].shape)}")
        if not bool(tensors[name].isfinite().all()):
            raise ConfigError(f"variables: expected finite values for '{name}', got others")
    return tensors
