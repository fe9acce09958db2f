"""Diagnostics of a network whose weights are divided over processes."""

from __future__ import annotations

from copy import deepcopy

from torch import distributed, nn

from torchcaps.diagnostics import EpochDiagnostics, Snapshot
from torchcaps.train._strategies import full_state


class WholeDiagnostics:
    """Diagnoses a divided network in the first process, on a whole copy in the memory of the host.

    Traces of a routing read all parents of a layer, and gradients are compared over all weights of a module: no process
    has them under FSDP2. The first process has room for a whole copy, since it writes checkpoints of whole weights.
    The statistics are those of one process, and all of them are computed.

    Args:
        diagnostics: The diagnostics after each epoch.
        model: The network before it is divided.
        first: Whether this is the first process; the others keep no copy.
    """

    def __init__(self, diagnostics: EpochDiagnostics, model: nn.Module, *, first: bool) -> None:
        self.diagnostics = diagnostics
        self.whole = deepcopy(model) if first else None

    def __call__(self, model: nn.Module, loss: nn.Module) -> Snapshot:
        """Diagnose the network as it is; all processes call it.

        Args:
            model: The divided network.
            loss: Loss of the gradients.

        Returns:
            The snapshot, the same in all processes.
        """
        state = full_state(model)
        found: list[Snapshot | None] = [None]
        if self.whole is not None:
            self.whole.load_state_dict(state)
            # A frozen stem has no gradients.
            for own, divided in zip(self.whole.parameters(), model.parameters(), strict=True):
                own.requires_grad_(divided.requires_grad)
            found = [self.diagnostics(self.whole, deepcopy(loss).cpu())]
        distributed.broadcast_object_list(found, src=0)
        (snapshot,) = found
        assert snapshot is not None
        return snapshot
