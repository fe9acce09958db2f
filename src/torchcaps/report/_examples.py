"""Selection of the images that figures show."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.evaluation import Evaluation

CORRECT, WRONG = 8, 4
PAIRS_CORRECT, PAIRS_WRONG, PAIRS_ABSENT = 6, 3, 4
# The headings of groups of images, and the number of images shown in each.
GROUPS = {"All networks are correct": 8, "Networks differ": 16, "All networks are wrong": 8}


def class_examples(evaluation: Evaluation) -> tuple[Tensor, Tensor]:
    """Select correct images of different classes, then wrong ones, and the class to decode each from.

    A wrong image occurs twice, decoded from its prediction and from its label (Sabour et al. 2017, fig. 3).

    Shape:
        Both results are [N].
    """
    labels, predictions = evaluation.labels, evaluation.predictions
    correct = evaluation.correct.nonzero().squeeze(1)
    # The first image of every class precedes the second of any.
    rank = torch.zeros_like(correct)
    for label in labels[correct].unique():
        same = labels[correct] == label
        rank[same] = torch.arange(int(same.sum()))
    order = (rank * evaluation.data.num_classes + labels[correct]).argsort()
    correct = correct[order][:CORRECT]
    wrong = (~evaluation.correct).nonzero().squeeze(1)[:WRONG]
    targets = [predictions[correct], torch.stack([predictions[wrong], labels[wrong]], dim=1).flatten()]
    return torch.cat([correct, wrong.repeat_interleave(2)]), torch.cat(targets)


def pair_examples(evaluation: Evaluation) -> tuple[Tensor, Tensor]:
    """Select images with two labels, and the two classes to decode each from.

    Correct images are decoded from both labels, wrong ones from their predictions and again from their labels. Further
    correct ones have one label replaced by the most active class that is neither label nor prediction (Sabour et al.
    2017, fig. 5); its capsule should contain nothing of the image.

    Shape:
        indices [N], classes [N, 2].
    """
    labels, predictions = evaluation.labels, evaluation.predictions  # [N, 2]
    correct = evaluation.correct.nonzero().squeeze(1)
    wrong = (~evaluation.correct).nonzero().squeeze(1)[:PAIRS_WRONG]
    # Without any correct image, wrong ones show the capsule of an absent class.
    rest = correct[PAIRS_CORRECT:] if len(correct) > PAIRS_CORRECT else correct if len(correct) else wrong
    shown = rest[:PAIRS_ABSENT]
    activations = evaluation.activations[shown].clone()  # [n, J]
    for pair in (labels, predictions):
        activations.scatter_(1, pair[shown], -1.0)
    absent = activations.argmax(dim=1)  # [n]
    targets = [
        labels[correct[:PAIRS_CORRECT]],
        torch.stack([predictions[wrong], labels[wrong]], dim=1).flatten(0, 1),
        torch.stack([labels[shown][:, 0], absent], dim=1),
    ]
    return torch.cat([correct[:PAIRS_CORRECT], wrong.repeat_interleave(2), shown]), torch.cat(targets)


def clearest_image(evaluation: Evaluation) -> int:
    """Return the correct image with the highest activation, or the most active image if none is correct."""
    highest = evaluation.activations.max(dim=-1).values  # [N]
    return int((highest + evaluation.correct).argmax())


def group_by_correctness(correct: Tensor) -> list[tuple[str, int, list[int]]]:
    """Group images by whether all, some or none of the networks are correct.

    Args:
        correct: Whether each network is correct on each image.

    Shape:
        correct: [networks, N].

    Returns:
        Heading, number of images to show, and indices of all images, for each group.

    Example:
        >>> groups = group_by_correctness(torch.tensor([[True, True, False], [True, False, False]]))
        >>> [(heading, indices) for heading, _, indices in groups]
        [('All networks are correct', [0]), ('Networks differ', [1]), ('All networks are wrong', [2])]
    """
    every, any_one = correct.all(dim=0), correct.any(dim=0)  # [N]
    masks = (every, any_one & ~every, ~any_one)
    pairs = zip(GROUPS.items(), masks, strict=True)
    return [(heading, count, mask.nonzero().flatten().tolist()) for (heading, count), mask in pairs]
