"""Diagnostics of routing: entropy of the coupling, logit change, dead capsules, gradients."""

from torchcaps.diagnostics.gradients import gradient_coherence, gradient_norms
from torchcaps.diagnostics.hooks import (
    eval_mode,
    record_inputs,
    routing_layers,
    trace_calls,
    trace_uniform,
    uniform_routing,
)
from torchcaps.diagnostics.layers import LayerDiagnostics, diagnose_layers, layer_votes
from torchcaps.diagnostics.measures import coupling_entropy, logit_change, plane_of
from torchcaps.diagnostics.snapshot import EpochDiagnostics, Snapshot, diagnose

__all__ = [
    "EpochDiagnostics",
    "LayerDiagnostics",
    "Snapshot",
    "coupling_entropy",
    "diagnose",
    "diagnose_layers",
    "eval_mode",
    "gradient_coherence",
    "gradient_norms",
    "layer_votes",
    "logit_change",
    "plane_of",
    "record_inputs",
    "routing_layers",
    "trace_calls",
    "trace_uniform",
    "uniform_routing",
]
