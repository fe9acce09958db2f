"""Write a router of your own, check its laws, and use it by name in any network."""

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.nn import ROUTERS, Router
from torchcaps.ops import Routing, Step, parent_softmax, register_routing
from torchcaps.testing import laws


def nearest_steps(votes: Tensor, *, iters: int = 3, sharpness: float = 1.0, softmax=parent_softmax):
    """Couple children to the parents whose pose is nearest to their vote, as in k-means clustering."""
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    for _ in range(iters):
        coupling = softmax(logits)  # [B, I, J]
        poses = tc.ops.squash(torch.einsum("bij,bijd->bjd", coupling, votes))  # [B, J, D]
        yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))
        logits = -sharpness * (votes - poses.unsqueeze(1)).square().sum(-1)  # [B, I, J]


register_routing(Routing("nearest", nearest_steps))


@ROUTERS.register("nearest")
class NearestRouting(Router):
    algorithm = "nearest"
    # The routing does not read the children's activations: the length of a vote is its presence.
    laws = Router.laws - {"inactive_child_has_no_vote"}

    def __init__(self, iters: int = 3, *, sharpness: float = 1.0) -> None:
        super().__init__()
        self.iters, self.sharpness = iters, sharpness


for name in laws.check(NearestRouting):
    print(f"kept: {name.replace('_', ' ')}")

layer = tc.nn.CapsLinear(32, 5, in_dim=8, out_dim=16, routing={"name": "nearest", "sharpness": 4.0})
children = tc.Capsules(torch.randn(2, 32, 8), torch.ones(2, 32))
print(f"\n{layer}\nreturns poses of shape {tuple(layer(children).poses.shape)}")
