"""The whole network of the released program from its formulas: a second derivation, for values and gradients.

It takes the program's variables in the program's layouts, and walks over positions and places of the kernel one by one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Variables = Mapping[str, Tensor]
# A joint of a parent's position and a place of the kernel.
Joint = tuple[tuple[int, int], tuple[int, int]]
Logits = dict[Joint, Tensor]
LOG_2PI = math.log(2 * math.pi)


def standardise(images: Tensor) -> Tensor:
    """Mean 0 and deviation 1 of each image over all pixels and channels."""
    rows = images.flatten(1)
    rows = (rows - rows.mean(1, keepdim=True)) / rows.std(1, correction=0, keepdim=True)
    return rows.view_as(images)


def couple_default(logits: Logits) -> Logits:
    """Positions compete for each pair of types, in groups of position + place; maximum over the map per pair."""
    top = torch.stack(list(logits.values())).amax(0)  # [B, I, J]
    density = {joint: (value - top).exp() for joint, value in logits.items()}
    totals: dict[tuple[int, int], Any] = {}
    for (position, place), value in density.items():
        group = (position[0] + place[0], position[1] + place[1])
        totals[group] = totals.get(group, 0.0) + value
    return {
        (position, place): value / (totals[position[0] + place[0], position[1] + place[1]] + 1e-7)
        for (position, place), value in density.items()
    }


def couple_fast(stride: int) -> Callable[[Logits], Logits]:
    """All parents of all positions that see a child compete; maximum over the map and the parents' types."""

    def couple(logits: Logits) -> Logits:
        top = torch.stack(list(logits.values())).amax((0, 3)).unsqueeze(-1)  # [B, I, 1]
        density = {joint: (value - top).exp() for joint, value in logits.items()}
        totals: dict[tuple[int, int], Any] = {}
        for (position, place), value in density.items():
            child = (stride * position[0] + place[0], stride * position[1] + place[1])
            totals[child] = totals.get(child, 0.0) + value.sum(-1, keepdim=True)
        return {
            (position, place): value
            / totals[stride * position[0] + place[0], stride * position[1] + place[1]].clamp_min(1e-6)
            for (position, place), value in density.items()
        }

    return couple


def couple_classes(logits: Logits) -> Logits:
    """All classes compete for a child."""
    return {joint: value.softmax(-1) for joint, value in logits.items()}


def route(
    votes: Logits,
    present: Mapping[Joint, Tensor],
    unit: Tensor,
    bias: Tensor,
    temps: list[float],
    couple: Callable[[Logits], Logits],
    floor: float,
) -> tuple[dict[tuple[int, int], Tensor], dict[tuple[int, int], Tensor]]:
    """Route votes [B, I, J, 16] of joints; `unit` is a cost per child and dimension, `bias` is added to all costs."""
    positions = sorted({position for position, _ in votes})
    coupling = {joint: torch.full_like(vote[..., 0], 1 / vote.shape[2]) for joint, vote in votes.items()}
    old: dict[tuple[int, int], Tensor] = {}
    logit: dict[tuple[int, int], Tensor] = {}
    for temp in temps:
        prior: Logits = {}
        for at in positions:
            own = [joint for joint in votes if joint[0] == at]
            share = torch.cat([coupling[joint] * present[joint].unsqueeze(-1) for joint in own], dim=1)  # [B, KKI, J]
            vote = torch.cat([votes[joint] for joint in own], dim=1)  # [B, KKI, J, 16]
            mass = share.sum(1, keepdim=True) + floor  # [B, 1, J]
            mean = 0.9 * (share.unsqueeze(-1) * vote).sum(1) / mass[:, 0].unsqueeze(-1)  # [B, J, 16]
            mean = mean + 0.1 * old[at] if at in old else mean
            apart = (vote - mean.unsqueeze(1)) ** 2
            variance = 5e-4 + (share.unsqueeze(-1) * apart).sum(1) / mass[:, 0].unsqueeze(-1)  # [B, J, 16]
            log_det = variance.log().sum(-1)  # [B, J]
            logit[at] = temp * (mass[:, 0] * (-log_det - 16 * unit) - bias)  # [B, J]
            density = F.logsigmoid(logit[at]) - 0.5 * (16 * LOG_2PI + log_det)
            exponent = density.unsqueeze(1) - (apart / (2 * variance.unsqueeze(1))).sum(-1)  # [B, KKI, J]
            prior.update(zip(own, exponent.chunk(len(own), dim=1), strict=True))
            old[at] = mean
        coupling = couple(prior)
    return old, logit


def conv_caps(
    poses: Tensor, present: Tensor, variables: Variables, name: str, temps: list[float], stride: int, fast: bool
) -> tuple[Tensor, Tensor]:
    """A convolutional layer: poses [B, I, 16, H, W] and activations [B, I, H, W] to the same of the parents."""
    types = poses.shape[1]
    weight = variables[f"{name}/weights"]  # [I, 3, 3, 4, 4J]
    side = (poses.shape[-1] - 3) // stride + 1
    places = list(itertools.product(range(3), range(3)))
    votes: Logits = {}
    activations: dict[Joint, Tensor] = {}
    for position in itertools.product(range(side), range(side)):
        for place in places:
            y, x = stride * position[0] + place[0], stride * position[1] + place[1]
            matrices = poses[..., y, x].unflatten(-1, (4, 4))  # [B, I, 4, 4]
            products = torch.stack([matrices[:, i] @ weight[i, place[0], place[1]] for i in range(types)], dim=1)
            votes[position, place] = products.unflatten(-1, (4, -1)).flatten(2, 3).transpose(2, 3)  # [B, I, J, 16]
            activations[position, place] = present[..., y, x]  # [B, I]
    sigma = variables[f"{name}/sigma_biases"].flatten()
    bias = variables[f"{name}/activation_biases"].flatten()
    if fast:
        unit, bias = (sigma**2 + 5e-4).log() + LOG_2PI + 1, 800 * bias
        temps = [4 * temp for temp in temps]
    else:
        unit, bias = sigma * (LOG_2PI + 1), 5000 * bias
    couple = couple_fast(stride) if fast else couple_default
    means, logits = route(votes, activations, unit, bias, temps, couple, 1e-7)
    rows = range(side)
    pose = torch.stack([torch.stack([means[y, x] for x in rows], -1) for y in rows], -2)  # [B, J, 16, H, W]
    logit = torch.stack([torch.stack([logits[y, x] for x in rows], -1) for y in rows], -2)  # [B, J, H, W]
    return pose, logit.sigmoid()


def network(variables: Variables, images: Tensor, iters: int, fast: bool = False) -> tuple[Tensor, Tensor]:
    """Class activations [B, J] and class poses [B, J, 16] of images [B, C, 32, 32] that are standardised already."""
    temps = [0.01 * (1 - 0.95 ** (n + 1)) for n in range(iters)]
    features = F.conv2d(images, variables["conv1/weights"].permute(3, 2, 0, 1), variables["conv1/biases"], stride=2)
    features = features.relu()
    poses = torch.einsum("bcyx,cd->bdyx", features, variables["conv_capsule1/weights"][0, 0]).unflatten(1, (-1, 16))
    present = torch.einsum("bcyx,cd->bdyx", features, variables["conv_capsule1/conv_capsule1_act/weights"][0, 0])
    present = (present - 1).sigmoid()
    poses, present = conv_caps(poses, present, variables, "convCaps0", temps, 2, fast)
    poses, present = conv_caps(poses, present, variables, "convCaps1", temps, 1, fast)
    votes: Logits = {}
    activations: dict[Joint, Tensor] = {}
    for place in itertools.product(range(4), range(4)):
        matrices = poses[..., place[0], place[1]].unflatten(-1, (4, 4))  # [B, I, 4, 4]
        vote = torch.einsum("birk,ikc->birc", matrices, variables["capsule2/weights"])  # [B, I, 4, 4J]
        vote = vote.unflatten(-1, (4, -1)).flatten(2, 3).transpose(2, 3)  # [B, I, J, 16]
        # Pixels from the centre of the image: the middle of the receptive field is 8 + 4 n.
        at = torch.zeros(16, dtype=vote.dtype)
        at[0], at[1] = (8 + 4 * place[1] - 16) / 100, (8 + 4 * place[0] - 16) / 100
        votes[(0, 0), place] = vote + at
        activations[(0, 0), place] = present[..., place[0], place[1]]
    sigma, bias = (variables[f"capsule2/{name}_biases"].flatten() for name in ("sigma", "activation"))
    quarter = [temp / 4 for temp in temps]
    means, logits = route(votes, activations, sigma * (LOG_2PI + 1), 5000 * bias, quarter, couple_classes, 1e-5)
    return logits[0, 0].sigmoid(), means[0, 0]


def spread(activations: Tensor, labels: Tensor, step: int = 0) -> Tensor:
    """The program's loss: the mean over samples and classes of the squared shortfall."""
    margin = 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / 50000 - 4)))
    targets = F.one_hot(labels, activations.shape[1]).to(activations)
    true = (targets * activations).sum(-1, keepdim=True)
    return ((1 - targets) * (activations + margin - true).clamp_min(0) ** 2).mean()
