"""Several interests of a user from a masked history, as MIND and ComiRec find them: K capsules, dynamic routing.

One vector per user must be near all topics that the user likes at once; K interest capsules can each be near one.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.nn import CapsLinear
from torchcaps.types import Capsules

TOPICS, ITEMS, LIKED, READ, DIM, INTERESTS = 20, 100, 3, 12, 5, 4


def histories(users: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return items of liked topics [B, READ], which are there [B, READ], the next one [B]; i has topic i % TOPICS."""
    topics = torch.rand(users, TOPICS).argsort(1)[:, :LIKED].gather(1, torch.randint(LIKED, (users, READ + 1)))
    items = topics + TOPICS * torch.randint(ITEMS // TOPICS, (users, READ + 1))  # [B, READ + 1]
    return items[:, :-1], torch.arange(READ) < torch.randint(6, READ + 1, (users, 1)), items[:, -1]


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
        return self.scale * (self.users(history, mask) @ F.normalize(self.items.weight, dim=-1).T).amax(dim=1)


def train(capsules: bool, steps: int) -> float:
    """Return the share of users whose next item is among the ten of the highest scores."""
    torch.manual_seed(0)
    model = Recommender(capsules)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        history, mask, following = histories(128)
        optimizer.zero_grad()
        F.cross_entropy(model(history, mask), following).backward()
        optimizer.step()
    history, mask, following = histories(2000)
    return (model(history, mask).topk(10).indices == following.unsqueeze(1)).any(1).float().mean().item()


if __name__ == "__main__":
    for capsules, name in ((False, "mean pooling"), (True, f"{INTERESTS} interest capsules")):
        print(f"{name}: the next item is among ten recommended ones for {100 * train(capsules, 400):.1f} % of users")
    print(f"by chance: {1000 / ITEMS:.1f} %; liked topics known: {1000 * TOPICS / LIKED / ITEMS:.1f} %")
