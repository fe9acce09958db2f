"""EM routing of the released program in float64, as sums over explicit indices: a second derivation to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# A joint of a child and a parent: (y, x, type) of the child, (row, column, type) of the parent, and (ky, kx).
Joint = tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int]]


@dataclass
class Layer:
    """One sample's children and what a layer knows of them."""

    votes: dict[Joint, Array]  # each [16]
    activations: dict[tuple[int, int, int], float]
    beta_u: Array  # [J]
    beta_a: Array  # [J]
    mass_floor: float


def class_layer(votes: Array, activations: Array, beta_u: Array, beta_a: Array) -> Layer:
    """All children at one place of a kernel of their own: votes [I, J, 16], activations [I]."""
    joints = {((0, 0, i), (0, 0, j), (0, 0)): votes[i, j] for i in range(len(votes)) for j in range(votes.shape[1])}
    return Layer(joints, {(0, 0, i): float(a) for i, a in enumerate(activations)}, beta_u, beta_a, 1e-5)


def conv_layer(poses: Array, weight: Array, activations: Array, stride: int, beta_u: Array, beta_a: Array) -> Layer:
    """A 3x3 kernel over a grid: poses [I, 4, 4, H, W], weight [I, 3, 3, 4, 4, J], activations [I, H, W]."""
    types, _, _, height, width = poses.shape
    joints: dict[Joint, Array] = {}
    for row in range((height - 3) // stride + 1):
        for column in range((width - 3) // stride + 1):
            for ky in range(3):
                for kx in range(3):
                    y, x = row * stride + ky, column * stride + kx
                    for i in range(types):
                        for j in range(weight.shape[-1]):
                            vote = poses[i, :, :, y, x] @ weight[i, ky, kx, :, :, j]
                            joints[(y, x, i), (row, column, j), (ky, kx)] = vote.reshape(16)
    present = {
        (y, x, i): float(activations[i, y, x]) for y in range(height) for x in range(width) for i in range(types)
    }
    return Layer(joints, present, beta_u, beta_a, 1e-7)


def softmax(logits: dict[Joint, float]) -> dict[Joint, float]:
    """The class layer: a child's coupling to all its parents sums to one."""
    top: dict[tuple[int, int, int], float] = {}
    total: dict[tuple[int, int, int], float] = {}
    for (child, _, _), value in logits.items():
        top[child] = max(top.get(child, -math.inf), value)
    for (child, _, _), value in logits.items():
        total[child] = total.get(child, 0.0) + math.exp(value - top[child])
    return {joint: math.exp(value - top[joint[0]]) / total[joint[0]] for joint, value in logits.items()}


def default_normaliser(logits: dict[Joint, float]) -> dict[Joint, float]:
    """The default variant: groups by position + kernel place and both types, the maximum over the map for each pair."""
    top: dict[tuple[int, int], float] = {}
    total: dict[tuple[int, int, int, int], float] = {}
    for (child, parent, _), value in logits.items():
        types = (child[2], parent[2])
        top[types] = max(top.get(types, -math.inf), value)
    density = {joint: math.exp(value - top[joint[0][2], joint[1][2]]) for joint, value in logits.items()}
    for (child, parent, place), value in density.items():
        group = (parent[0] + place[0], parent[1] + place[1], child[2], parent[2])
        total[group] = total.get(group, 0.0) + value
    return {
        (child, parent, place): value / (total[parent[0] + place[0], parent[1] + place[1], child[2], parent[2]] + 1e-7)
        for (child, parent, place), value in density.items()
    }


def fast_normaliser(logits: dict[Joint, float]) -> dict[Joint, float]:
    """The fast variant: a child's parents at all positions, the maximum over the map for the type of the child."""
    top: dict[int, float] = {}
    total: dict[tuple[int, int, int], float] = {}
    for (child, _, _), value in logits.items():
        top[child[2]] = max(top.get(child[2], -math.inf), value)
    density = {joint: math.exp(value - top[joint[0][2]]) for joint, value in logits.items()}
    for (child, _, _), value in density.items():
        total[child] = total.get(child, 0.0) + value
    return {joint: value / max(total[joint[0]], 1e-6) for joint, value in density.items()}


def route(
    layer: Layer, temps: list[float], normalise: Callable[[dict[Joint, float]], dict[Joint, float]]
) -> tuple[dict[tuple[int, int, int], Array], dict[tuple[int, int, int], float]]:
    """Means and logits of the activations of all parents after as many iterations as there are temperatures."""
    parents = sorted({parent for _, parent, _ in layer.votes})
    coupling = dict.fromkeys(layer.votes, 1 / len(layer.beta_u))
    mean = {parent: np.zeros(16) for parent in parents}
    activity: dict[tuple[int, int, int], float] = {}
    for temp in temps:
        share = {joint: c * layer.activations[joint[0]] for joint, c in coupling.items()}
        mass = dict.fromkeys(parents, layer.mass_floor)
        first = {parent: np.zeros(16) for parent in parents}
        second = {parent: np.zeros(16) for parent in parents}
        for joint, r in share.items():
            mass[joint[1]] += r
            first[joint[1]] += r * layer.votes[joint]
        for parent in parents:
            mean[parent] = 0.9 * first[parent] / mass[parent] + 0.1 * mean[parent]
        for joint, r in share.items():
            second[joint[1]] += r * (layer.votes[joint] - mean[joint[1]]) ** 2
        variance = {parent: second[parent] / mass[parent] + 5e-4 for parent in parents}
        for parent in parents:
            price = sum(layer.beta_u[parent[2]] + math.log(math.sqrt(v)) for v in variance[parent])
            activity[parent] = temp * (layer.beta_a[parent[2]] - price * mass[parent])
        logits = {}
        for joint, vote in layer.votes.items():
            m = joint[1]
            log_active = -math.log1p(math.exp(-activity[m])) if activity[m] > -30 else activity[m]
            distance = ((vote - mean[m]) ** 2 / variance[m] + np.log(2 * math.pi * variance[m])).sum()
            logits[joint] = log_active - 0.5 * float(distance)
        coupling = normalise(logits)
    return mean, activity
