"""Put a capsule layer into a network of your own: here it learns to distinguish three shapes, wherever they are."""

import torch
from torch import Tensor, nn

import torchcaps as tc

SHAPES = ["bar", "cross", "box"]


class MyNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU())
        self.primary = tc.nn.PrimaryCaps2d(16, caps=4, dim=8, kernel_size=5, stride=2)
        # 16 x 16 pixels leave 4 x 4 positions with 4 types of capsules at each.
        self.head = tc.nn.CapsLinear(4 * 4 * 4, len(SHAPES), in_dim=8, out_dim=8, routing=tc.nn.DynamicRouting(iters=3))

    def forward(self, images: Tensor) -> tc.Capsules:
        return self.head(self.primary(self.stem(images)))


def draw(count: int) -> tuple[Tensor, Tensor]:
    """Shapes of 7 x 7 pixels at random places, in noise."""
    stamp = torch.zeros(3, 7, 7)
    stamp[0, :, 3] = 1
    stamp[1, :, 3] = stamp[1, 3, :] = 1
    stamp[2] = 1
    stamp[2, 1:-1, 1:-1] = 0
    labels = torch.randint(3, (count,))
    images = 0.2 * torch.rand(count, 1, 16, 16)
    for image, label in zip(images, labels, strict=True):
        row, column = torch.randint(10, (2,)).tolist()
        image[0, row : row + 7, column : column + 7] += 0.8 * stamp[label]
    return images, labels


torch.manual_seed(0)
model, margin = MyNetwork(), tc.nn.MarginLoss()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(121):
    images, labels = draw(32)
    loss = margin(model(images), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 30 == 0:
        print(f"step {step:3}   loss {loss.item():.3f}")

images, labels = draw(500)
with torch.no_grad():
    capsules = model(images)
right = (capsules.activations.argmax(-1) == labels).float().mean()
print(f"\n{right:.1%} of 500 new images are named correctly; the lengths of the capsules of the first three:")
for lengths, label in zip(capsules.activations[:3].tolist(), labels[:3].tolist(), strict=True):
    print(
        f"  {SHAPES[label]:>5}:  "
        + "   ".join(f"{name} {length:.2f}" for name, length in zip(SHAPES, lengths, strict=True))
    )
