"""Evaluation of trained models: predictions, accuracy, robustness, protocols of the papers."""

from torchcaps.evaluation.adversarial import EPSILONS, Robustness, attack, evaluate_attack
from torchcaps.evaluation.calibration import fit_temperature
from torchcaps.evaluation.corruptions import CORRUPTIONS, corrupted
from torchcaps.evaluation.evaluate import Evaluation, evaluate
from torchcaps.evaluation.perturb import OFFSETS, perturb
from torchcaps.evaluation.predictions import is_correct, predict_labels
from torchcaps.evaluation.pretrained_data import embedded_data, pretrained_data
from torchcaps.evaluation.protocols import (
    PROTOCOLS,
    ProtocolResult,
    ProtocolRow,
    by_corruption,
    by_overlap,
    transfer,
)
from torchcaps.evaluation.storage import load_evaluation, save_evaluation

__all__ = [
    "CORRUPTIONS",
    "EPSILONS",
    "OFFSETS",
    "PROTOCOLS",
    "Evaluation",
    "ProtocolResult",
    "ProtocolRow",
    "Robustness",
    "attack",
    "by_corruption",
    "by_overlap",
    "corrupted",
    "embedded_data",
    "evaluate",
    "evaluate_attack",
    "fit_temperature",
    "is_correct",
    "load_evaluation",
    "perturb",
    "predict_labels",
    "pretrained_data",
    "save_evaluation",
    "transfer",
]
