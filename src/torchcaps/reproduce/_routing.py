"""What the figures show of the routing into the classes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data import ImageData, to_float
from torchcaps.eval import Evaluation
from torchcaps.eval.pictures import clearest, lacking
from torchcaps.models import ImageModel
from torchcaps.nn import DynamicRouting
from torchcaps.nn.watch import routing_layers
from torchcaps.ops.diagnostics import logit_change, plane_of
from torchcaps.types import Trace
from torchcaps.viz import VoteView

# Images whose votes are in memory together.
BATCH = 32


def class_router(model: ImageModel) -> DynamicRouting | None:
    """The router into the classes, the last of a network, where it is that of dynamic routing."""
    routers = [layer.routing for layer in routing_layers(model).values()]
    return routers[-1] if routers and isinstance(routers[-1], DynamicRouting) else None


@torch.inference_mode()
def mean_changes(model: ImageModel, router: DynamicRouting, data: ImageData, iters: int) -> Tensor:
    """How far the router into the classes moves logits and coupling at each iteration, over all images: [2, R-1].

    Both are means of absolute changes; see `ops.diagnostics.logit_change`. It goes through so many iterations, whatever
    its own number is, which it has again afterwards.
    """
    usual, total = router.iters, torch.zeros(2, iters - 1)
    router.iters = iters
    try:
        for batch in data.batches(BATCH):
            trace = model.trace(to_float(batch.images))
            moved = trace.coupling.diff(dim=0).abs().mean(dim=(1, 2, 3))
            total += len(batch.images) * torch.stack([logit_change(trace.logits), moved])
    finally:
        router.iters = usual
    return total / len(data)


@torch.inference_mode()
def iterates(model: ImageModel) -> str | None:
    """Why there is no before and after in a network's routing, or None when there is."""
    reason = lacking("coupling", model)
    if reason is not None:
        return reason
    iters = model.trace(torch.zeros(1, *model.image_shape)).iters
    return None if iters > 1 else "its routing has one iteration"


@torch.inference_mode()
def view_votes(model: ImageModel, evaluation: Evaluation) -> list[VoteView]:
    """The votes for the most active class and for the second, of the image whose class was found most clearly."""
    place = clearest(evaluation)
    trace = model.trace(to_float(evaluation.data.batch([place]).images))
    names = evaluation.data.class_names
    ranking = trace.activations[-1, 0].topk(min(2, len(names))).indices.tolist()
    return [view_parent(trace, parent, names[parent]) for parent in ranking]


def view_parent(trace: Trace, parent: int, name: str) -> VoteView:
    """One parent of the first image of a trace, with what became of the votes that end up nearest to it and farthest.

    The titles say the median coupling of the tenth of the votes with the least distance from the parent's last pose,
    and of the tenth with the greatest.
    """
    votes, poses = trace.votes[0, :, parent], trace.poses[:, 0, parent]  # [I, D], [R, D]
    coupling = trace.coupling[[0, -1], 0, :, parent]  # [2, I]
    order = (votes - poses[-1]).norm(dim=-1).argsort()  # [I]
    tenth = max(1, len(order) // 10)
    near, far = (coupling[:, some].median(dim=1).values.tolist() for some in (order[:tenth], order[-tenth:]))  # [2]
    active = trace.activations[[0, -1], 0, parent].tolist()  # [2]
    before, after = (
        f"Class {name}, iteration {iteration}: activation {active[end]:.2f}\n"
        f"median coupling: nearest tenth {near[end]:.3f}, farthest {far[end]:.3f}"
        for end, iteration in enumerate((1, trace.iters))
    )
    plane, kept = plane_of(votes, poses[-1])  # [D, 2]
    even = 1 / trace.votes.shape[2]
    return VoteView(votes @ plane, coupling, poses[[0, -1]] @ plane, even, kept, (before, after))
