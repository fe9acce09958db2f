"""What a trained model can do: evaluation, perturbed capsules, pictures, the report."""

from torchcaps.eval.adversarial import EPSILONS, Robustness, attack, withstand
from torchcaps.eval.corruptions import CORRUPTIONS, corrupted
from torchcaps.eval.diagnostics import Diagnosis, LayerDiagnosis, diagnose
from torchcaps.eval.evaluate import Evaluation, evaluate
from torchcaps.eval.perturb import OFFSETS, perturb
from torchcaps.eval.pictures import PICTURES, Picture, Subject, draw
from torchcaps.eval.protocols import PROTOCOLS, Finding, Findings, by_corruption, by_overlap, transfer
from torchcaps.eval.report import report, save_diagnosis, save_evaluation

__all__ = [
    "CORRUPTIONS",
    "EPSILONS",
    "OFFSETS",
    "PICTURES",
    "PROTOCOLS",
    "Diagnosis",
    "Evaluation",
    "Finding",
    "Findings",
    "LayerDiagnosis",
    "Picture",
    "Robustness",
    "Subject",
    "attack",
    "by_corruption",
    "by_overlap",
    "corrupted",
    "diagnose",
    "draw",
    "evaluate",
    "perturb",
    "report",
    "save_diagnosis",
    "save_evaluation",
    "transfer",
    "withstand",
]
