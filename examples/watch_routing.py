"""Watch two parents compete for the same parts: a triangle and a rectangle make a house, or a boat.

Each part sees where it is and how it is turned, and says what pose each whole would have if it were there. The parts
agree about the boat and not about the house, and the routing finds that out.
"""

import torch

import torchcaps as tc

PARTS = ["rectangle", "triangle"]
WHOLES = ["house", "boat"]


def turn(degrees: float) -> torch.Tensor:
    angle = torch.deg2rad(torch.tensor(degrees))
    return 2 * torch.stack([angle.cos(), angle.sin()])


# The rectangle takes the house to stand upright and the boat to lean by 15 degrees; to the triangle the house stands on
# its head, while about the boat it says nearly the same.
votes = torch.stack([torch.stack([turn(90), turn(15)]), torch.stack([turn(-80), turn(20)])]).unsqueeze(
    0
)  # [1, 2, 2, 2]
trace = tc.ops.trace("dynamic", votes, iters=4)

print("iteration   " + "   ".join(f"{part} -> {whole}" for part in PARTS for whole in WHOLES) + "   |house|   |boat|")
for step in range(trace.iters):
    shares = trace.coupling[step, 0].flatten().tolist()
    cells = [
        f"{share:>{len(part) + len(whole) + 4}.0%}"
        for share, (part, whole) in zip(shares, [(part, whole) for part in PARTS for whole in WHOLES], strict=True)
    ]
    house, boat = trace.activations[step, 0].tolist()
    print(f"{step + 1:>9}   " + "   ".join(cells) + f"   {house:7.2f}   {boat:6.2f}")

x, y = trace.poses[-1, 0, 1].tolist()
lean = torch.rad2deg(torch.atan2(torch.tensor(y), torch.tensor(x)))
print(f"\nBoth parts join the boat, which leans by {lean:.1f} degrees: between their votes, 15 and 20.")
