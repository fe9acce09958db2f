"""Write a router of your own, have its laws checked, and use it by name in a network that knows nothing of it."""

from typing import Any

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.nn import ROUTERS, Router
from torchcaps.ops import ROUTINGS, Step, parent_softmax
from torchcaps.testing import laws


@ROUTINGS.register("nearest")
def nearest_steps(votes: Tensor, /, *, iters: int = 3, sharpness: float = 1.0, softmax=parent_softmax):
    """Children go to the parents whose pose is nearest to their vote, as in clustering by k-means."""
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    for _ in range(iters):
        coupling = softmax(logits)  # [B, I, J]
        poses = tc.ops.squash(torch.einsum("bij,bijd->bjd", coupling, votes))  # [B, J, D]
        yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))
        logits = -sharpness * (votes - poses.unsqueeze(1)).square().sum(-1)  # [B, I, J]


@ROUTERS.register("nearest")
class NearestRouting(Router):
    algorithm = "nearest"
    # It does not look at the activations of the children: their votes are short where they are not there.
    laws = Router.laws - {"inactive_child_has_no_vote"}

    def __init__(self, iters: int = 3, *, sharpness: float = 1.0) -> None:
        super().__init__()
        self.iters, self.sharpness = iters, sharpness

    def options(self) -> dict[str, Any]:
        return {"iters": self.iters, "sharpness": self.sharpness}


for name in laws.check(NearestRouting):
    print(f"kept: {name.replace('_', ' ')}")

layer = tc.nn.CapsLinear(32, 5, in_dim=8, out_dim=16, routing=tc.nn.make_router({"name": "nearest", "sharpness": 4.0}))
children = tc.Capsules(torch.randn(2, 32, 8), torch.ones(2, 32))
print(f"\n{layer}\ngives poses of shape {tuple(layer(children).poses.shape)}")
