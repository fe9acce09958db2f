"""What a trained model can do: evaluation, perturbed capsules, pictures, the report."""

from torchcaps.eval.evaluate import Evaluation, evaluate
from torchcaps.eval.perturb import OFFSETS, perturb
from torchcaps.eval.pictures import PICTURES, Picture, Subject, draw
from torchcaps.eval.report import report, save_evaluation

__all__ = [
    "OFFSETS",
    "PICTURES",
    "Evaluation",
    "Picture",
    "Subject",
    "draw",
    "evaluate",
    "perturb",
    "report",
    "save_evaluation",
]
