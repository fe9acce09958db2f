"""Hooks that record, trace and replace the routing of a network's layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.nn.routers import Router, routing_layers
from torchcaps.types import Capsules, Trace

__all__ = ["eval_mode", "record_inputs", "routing_layers", "trace_calls", "trace_uniform", "uniform_routing"]

Calls = list[tuple[Any, ...]]


@contextmanager
def record_inputs(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, Calls]]:
    """Record the positional arguments of every call of some layers.

    Args:
        layers: The layers by name.

    Yields:
        The calls of each layer, in the order of their first calls; filled while the context is active.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> images = torch.rand(2, 1, 28, 28)
        >>> with record_inputs({"head": model.head}) as calls:
        ...     _ = model(images)
        >>> len(calls["head"])
        1
    """
    recorded: dict[str, Calls] = {}

    def record(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda module, args: recorded.setdefault(name, []).append(args)

    handles = [layer.register_forward_pre_hook(record(name)) for name, layer in layers.items()]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def trace_calls(layer: Any, calls: Calls) -> Trace:
    """Trace the routing of a layer from its recorded calls.

    A layer with `stepwise = True` performs one iteration per call; their traces are joined. Of any other layer the
    last call is traced.

    Args:
        layer: The layer.
        calls: Its calls, from `record_inputs`.

    Shape:
        Returns a trace with votes [B, I, J, D] and poses [R, B, J, D].

    Returns:
        The trace.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> images = torch.rand(2, 1, 28, 28)
        >>> trace_calls(model.head, [(model.features(images),)]).iters
        3
    """
    if getattr(layer, "stepwise", False):
        return Trace.join([layer.trace(*args) for args in calls])
    return layer.trace(*calls[-1])


def trace_uniform(layer: Any, *args: Any) -> Trace:
    """Trace a layer with uniform coupling in place of the softmax of its logits.

    Args:
        layer: The layer.
        *args: Inputs of the layer.

    Shape:
        Returns a trace with votes [B, I, J, D] and poses [R, B, J, D].

    Returns:
        The trace; a router without a softmax is traced unchanged.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> images = torch.rand(2, 1, 28, 28)
        >>> trace_uniform(model.head, model.features(images)).coupling.unique().numel()
        1
    """
    router: Router = layer.routing
    return layer.trace(*args, coupling="uniform") if router.contract.has_softmax else layer.trace(*args)


@contextmanager
def uniform_routing(layer: nn.Module) -> Iterator[list[Trace]]:
    """Replace the output of one layer by that of uniform coupling.

    A router without a softmax keeps its coupling. The layer may return capsules or poses alone.

    Args:
        layer: The layer.

    Shape:
        Yields a list for traces with poses [R, B, J, D].

    Yields:
        A list that holds the trace of the latest call.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> images = torch.rand(2, 1, 28, 28)
        >>> with uniform_routing(model.head) as traces:
        ...     _ = model(images)
        >>> traces[0].coupling.unique().numel()
        1
    """
    traces: list[Trace] = []

    def instead(module: nn.Module, args: tuple[Any, ...], output: Capsules | Tensor) -> Capsules | Tensor:
        traces[:] = [trace_uniform(module, *args)]
        even = traces[-1].routed
        if isinstance(output, Tensor):
            return even.poses.reshape_as(output)
        return Capsules(even.poses.reshape_as(output.poses), even.activations.reshape_as(output.activations))

    handle = layer.register_forward_hook(instead)
    try:
        yield traces
    finally:
        handle.remove()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode and seed the random generators with 0.

    The modes of all modules and the states of the generators are restored afterwards.

    Args:
        model: The network.

    Yields:
        Nothing.

    Example:
        >>> layer = nn.Dropout()
        >>> with eval_mode(layer):
        ...     layer.training
        False
        >>> layer.training
        True
    """
    modes = {module: module.training for module in model.modules()}
    devices = [parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices):
        torch.manual_seed(0)
        model.eval()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode
