"""Several interests of a user from a masked history, as MIND and ComiRec find them: K capsules, dynamic routing.

A user likes a few of many topics, and has read some items of each. One vector per user must be near all of them at
once; K interest capsules can each be near one. The item to recommend next belongs to one of the topics. The topics are
known, because the histories are generated, so that the capsules can be compared with them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.nn import CapsLinear
from torchcaps.types import Capsules

TOPICS, ITEMS, LIKED, READ, DIM, INTERESTS = 20, 100, 3, 12, 5, 4


def histories(users: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return items [B, READ], which of them are there [B, READ], and the next item [B]; item i has topic i % TOPICS."""
    liked = torch.rand(users, TOPICS).argsort(1)[:, :LIKED]  # [B, LIKED]
    topics = liked.gather(1, torch.randint(LIKED, (users, READ + 1)))  # [B, READ + 1]
    items = topics + TOPICS * torch.randint(ITEMS // TOPICS, (users, READ + 1))  # [B, READ + 1]
    mask = torch.arange(READ) < torch.randint(6, READ + 1, (users, 1))  # [B, READ]
    return items[:, :-1], mask, items[:, -1]


class Recommender(nn.Module):
    def __init__(self, capsules: bool) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM)
        self.pool = CapsLinear(None, INTERESTS, DIM, DIM, routing="dynamic") if capsules else nn.Linear(DIM, DIM)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def users(self, history: Tensor, mask: Tensor) -> Tensor:
        """Return the interests of each user, [B, K, DIM], of length 1; one of them with mean pooling."""
        poses = self.items(history)  # [B, READ, DIM]
        if isinstance(self.pool, CapsLinear):
            return F.normalize(self.pool(Capsules(poses, poses.norm(dim=-1)), mask).poses, dim=-1)
        mean = (poses * mask.unsqueeze(-1)).sum(1, keepdim=True) / mask.sum(1)[:, None, None]
        return F.normalize(self.pool(mean), dim=-1)

    def forward(self, history: Tensor, mask: Tensor) -> Tensor:
        """Return the score of every item, [B, ITEMS]: that of the interest that likes it most."""
        items = F.normalize(self.items.weight, dim=-1)  # [ITEMS, DIM]
        return self.scale * (self.users(history, mask) @ items.T).amax(dim=1)


def train(capsules: bool, steps: int) -> float:
    """Return the share of users whose next item is among the ten of the highest scores."""
    torch.manual_seed(0)
    model = Recommender(capsules)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        history, mask, following = histories(128)
        loss = F.cross_entropy(model(history, mask), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    history, mask, following = histories(2000)
    found = model(history, mask).topk(10).indices == following.unsqueeze(1)  # [B, 10]
    return found.any(1).float().mean().item()


if __name__ == "__main__":
    for capsules, name in ((False, "mean pooling"), (True, f"{INTERESTS} interest capsules")):
        print(f"{name}: the next item is among ten recommended ones for {100 * train(capsules, 400):.1f} % of users")
    most = 10 / (LIKED * ITEMS // TOPICS)
    print(f"by chance: {1000 / ITEMS:.1f} %; with the liked topics known: {100 * most:.1f} %")
