"""Which images with two things in them to show, and the classes to decode them from."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.eval.evaluate import Evaluation

RIGHT, WRONG, NEITHER = 6, 3, 4


def pair_examples(evaluation: Evaluation) -> tuple[Tensor, Tensor]:
    """Which images to show [N], and the two classes to decode each from [N, 2].

    Right ones from both labels; wrong ones from their predictions and again from their labels; and right ones once
    more, with one label exchanged for the most active class that is neither label nor prediction (Sabour et al. 2017,
    fig. 5): nothing of it should be in the image.
    """
    labels, said = evaluation.labels, evaluation.predictions  # [N, 2]
    right = evaluation.right.nonzero().squeeze(1)
    wrong = (~evaluation.right).nonzero().squeeze(1)[:WRONG]
    # Where none is right, the wrong ones show what a capsule holds that has nothing to say.
    shown = (right[RIGHT:] if len(right) > RIGHT else right if len(right) else wrong)[:NEITHER]
    rest = evaluation.activations[shown].clone()  # [n, J]
    for pair in (labels, said):
        rest.scatter_(1, pair[shown], -1.0)
    absent = rest.argmax(dim=1)  # [n]
    targets = [
        labels[right[:RIGHT]],
        torch.stack([said[wrong], labels[wrong]], dim=1).flatten(0, 1),
        torch.stack([labels[shown][:, 0], absent], dim=1),
    ]
    return torch.cat([right[:RIGHT], wrong.repeat_interleave(2), shown]), torch.cat(targets)
