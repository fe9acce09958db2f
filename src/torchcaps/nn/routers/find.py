"""Find the routing layers of a network."""

from __future__ import annotations

from torch import nn

from torchcaps.nn.routers.base import Router


def routing_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of a network that have a router and a `trace` method.

    Args:
        model: The network.

    Returns:
        The layers by their path in the network.

    Example:
        >>> from torchcaps.nn import CapsLinear
        >>> list(routing_layers(nn.Sequential(nn.Identity(), CapsLinear(6, 3, in_dim=8, out_dim=16))))
        ['1']
    """
    return {
        name: module
        for name, module in model.named_modules()
        if name and isinstance(getattr(module, "routing", None), Router) and callable(getattr(module, "trace", None))
    }
