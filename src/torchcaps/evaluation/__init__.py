"""Evaluation of trained models: predictions, accuracy, robustness, protocols of the papers."""

import torchcaps._needs_train  # noqa: F401
from torchcaps.evaluation.adversarial import EPSILONS, Robustness, attack, evaluate_attack
from torchcaps.evaluation.binding import adjusted_rand_index, by_binding
from torchcaps.evaluation.calibration import fit_temperature, reliability_bins
from torchcaps.evaluation.corruptions import CORRUPTIONS, corrupted
from torchcaps.evaluation.crowding import by_distance
from torchcaps.evaluation.evaluate import Evaluation, evaluate
from torchcaps.evaluation.factors import FACTORS, Factor, known_factors, with_known_factors
from torchcaps.evaluation.faithfulness import by_deletion, deletion_curve
from torchcaps.evaluation.findings import findings
from torchcaps.evaluation.intervals import bootstrap_weights, percentiles, wilson
from torchcaps.evaluation.metrics import ClassMetrics, Metric, Metrics, compute_metrics
from torchcaps.evaluation.ood import by_novelty
from torchcaps.evaluation.paired import PairedDifference, PairedTest, compare_evaluations, mcnemar
from torchcaps.evaluation.parse_tree import by_layer
from torchcaps.evaluation.perturb import OFFSETS, perturb
from torchcaps.evaluation.picasso import by_parts, scramble, scrambled
from torchcaps.evaluation.pose import by_pose, class_features, equivariance
from torchcaps.evaluation.predictions import is_correct, predict_labels
from torchcaps.evaluation.pretrained_data import PretrainedRun, download_weights, embedded_data, pretrained_data
from torchcaps.evaluation.protocols import (
    PROTOCOLS,
    Curve,
    ProtocolResult,
    ProtocolRow,
    by_corruption,
    by_overlap,
    transfer,
)
from torchcaps.evaluation.rejection import Rejection, detection, novelty, novelty_of_data
from torchcaps.evaluation.relevance import PrimaryRelevance, RoutingRelevance, routing_relevance, strongest_children
from torchcaps.evaluation.ridge import Ridge, fit_ridge
from torchcaps.evaluation.saliency_maps import SALIENCY, make_explainer, receptive_fields, saliency
from torchcaps.evaluation.storage import load_evaluation, save_evaluation
from torchcaps.evaluation.undetected import by_attack
from torchcaps.evaluation.view_angles import by_angle, nearest_angles

__all__ = [
    "CORRUPTIONS",
    "EPSILONS",
    "FACTORS",
    "OFFSETS",
    "PROTOCOLS",
    "SALIENCY",
    "ClassMetrics",
    "Curve",
    "Evaluation",
    "Factor",
    "Metric",
    "Metrics",
    "PairedDifference",
    "PairedTest",
    "PretrainedRun",
    "PrimaryRelevance",
    "ProtocolResult",
    "ProtocolRow",
    "Rejection",
    "Ridge",
    "Robustness",
    "RoutingRelevance",
    "adjusted_rand_index",
    "attack",
    "bootstrap_weights",
    "by_angle",
    "by_attack",
    "by_binding",
    "by_corruption",
    "by_deletion",
    "by_distance",
    "by_layer",
    "by_novelty",
    "by_overlap",
    "by_parts",
    "by_pose",
    "class_features",
    "compare_evaluations",
    "compute_metrics",
    "corrupted",
    "deletion_curve",
    "detection",
    "download_weights",
    "embedded_data",
    "equivariance",
    "evaluate",
    "evaluate_attack",
    "findings",
    "fit_ridge",
    "fit_temperature",
    "is_correct",
    "known_factors",
    "load_evaluation",
    "make_explainer",
    "mcnemar",
    "nearest_angles",
    "novelty",
    "novelty_of_data",
    "percentiles",
    "perturb",
    "predict_labels",
    "pretrained_data",
    "receptive_fields",
    "reliability_bins",
    "routing_relevance",
    "saliency",
    "save_evaluation",
    "scramble",
    "scrambled",
    "strongest_children",
    "transfer",
    "wilson",
    "with_known_factors",
]
