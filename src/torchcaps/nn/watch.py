"""Look at the routing layers of a network while it runs, without the network knowing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.nn.routers import Router
from torchcaps.types import Capsules, Trace

Loss = Callable[[Capsules, Tensor], Tensor]
Calls = list[tuple[Any, ...]]


def routing_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of a network that route, by their path in it: each has a router and can be traced.

    >>> from torchcaps.nn import CapsLinear
    >>> list(routing_layers(nn.Sequential(nn.Identity(), CapsLinear(6, 3, in_dim=8, out_dim=16))))
    ['1']
    """
    return {
        name: module
        for name, module in model.named_modules()
        if name and isinstance(getattr(module, "routing", None), Router) and callable(getattr(module, "trace", None))
    }


@contextmanager
def watching(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, Calls]]:
    """While the context lasts, keep what each layer receives at each call, in the order of their first calls.

    Only what is given by position is seen. `trace_calls` makes a trace of it.
    """
    received: dict[str, Calls] = {}

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda module, args: received.setdefault(name, []).append(args)

    handles = [layer.register_forward_pre_hook(keep(name)) for name, layer in layers.items()]
    try:
        yield received
    finally:
        for handle in handles:
            handle.remove()


def trace_calls(layer: Any, calls: Calls) -> Trace:
    """The routing of a layer in a pass, from what it received at each call.

    One that is `stepwise` goes one iteration further at every call, and all of them are joined; any other is seen at
    its last call.
    """
    if getattr(layer, "stepwise", False):
        return Trace.join([layer.trace(*args) for args in calls])
    return layer.trace(*calls[-1])


def trace_evenly(layer: Any, *args: Any) -> Trace:
    """Route in a layer with every child divided evenly among its parents, whatever its logits say.

    Everything else is the router's own: what it does with the votes, and how active it takes a parent to be.
    """
    router: Router = layer.routing
    inputs = router.inputs

    def even_inputs(*given: Any, **options: Any) -> dict[str, Any]:
        found = inputs(*given, **options)
        choose = found.get("softmax")
        if choose is None:
            return found
        return {**found, "softmax": lambda logits, **how: choose(torch.zeros_like(logits), **how)}

    # An attribute of this one router, which hides the method of its class until it is taken away again.
    router.__dict__["inputs"] = even_inputs
    try:
        return layer.trace(*args)
    finally:
        del router.__dict__["inputs"]


@contextmanager
def routed_evenly(layer: nn.Module) -> Iterator[list[Trace]]:
    """While the context lasts, this layer alone gives what even coupling gives, and the traces of it are kept.

    See `trace_evenly`; a router that has no softmax to be made even goes on as it is, which its trace shows. A layer
    may give its parents' poses alone.
    """
    traces: list[Trace] = []

    def instead(module: nn.Module, args: tuple[Any, ...], output: Capsules | Tensor) -> Capsules | Tensor:
        traces[:] = [trace_evenly(module, *args)]
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
def at_rest(model: nn.Module) -> Iterator[None]:
    """While the context lasts, the network is in evaluation mode; random numbers are the same each time.

    Neither its mode nor the state of the generators is changed for whoever comes next.
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


def gradient_norms(model: nn.Module, loss: Loss, images: Tensor, labels: Tensor) -> dict[str, float]:
    """The length of the loss's gradient in the parameters of each layer, by the layer's path.

    What belongs to a routing layer, its router's parameters included, is one; else each module with parameters of its
    own. Parameters that the loss does not depend on are left out. No gradient is stored in the parameters.
    """
    routed = tuple(routing_layers(model))
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    with torch.enable_grad():
        value = loss(model(images), labels)
        gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    squares: dict[str, float] = {}
    for name, gradient in zip(named, gradients, strict=True):
        if gradient is not None:
            owner = next((layer for layer in routed if name.startswith(f"{layer}.")), name.rpartition(".")[0])
            squares[owner] = squares.get(owner, 0.0) + float(gradient.double().square().sum())
    return {owner: square**0.5 for owner, square in squares.items()}
