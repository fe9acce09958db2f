"""Experiments of many runs: comparisons of routers and reproductions of published tables and figures."""

import torchcaps._needs_train
import torchcaps.experiments.claim_metrics
import torchcaps.experiments.lecture_list  # noqa: F401, registers claims
from torchcaps.experiments._json import read_json, write_json
from torchcaps.experiments.claims import Claim, Claims, ClaimState
from torchcaps.experiments.compare import compare
from torchcaps.experiments.compare_table import compare_lines, compare_markdown
from torchcaps.experiments.comparison import Comparison, RouterMetrics, RouterRow, RouterRun, summarize_router
from torchcaps.experiments.grid import PlannedRun, RunOutcome, run_grid
from torchcaps.experiments.lecture_claims import LECTURE_CLAIMS, LectureClaim
from torchcaps.experiments.metrics import METRICS, Metric, is_lower_better, with_direction
from torchcaps.experiments.recorded import RecordedNetwork, load_recorded, recorded_minutes
from torchcaps.experiments.repeat import RepeatedRun, Repetition, repeat
from torchcaps.experiments.repeat_report import repeat_lines, run_lines, write_repeat_report
from torchcaps.experiments.reporter import Reporter, SilentReporter
from torchcaps.experiments.reproduce import reproduce
from torchcaps.experiments.reproduction_report import write_reproduction_report
from torchcaps.experiments.reproduction_result import (
    FigureFile,
    NetworkMetrics,
    NetworkRow,
    NetworkRun,
    ReproductionResult,
    result_file,
    summarize_network,
)
from torchcaps.experiments.reproduction_table import format_machine, reproduction_lines, reproduction_markdown
from torchcaps.experiments.reproductions import (
    NetworkSpec,
    Reproduction,
    changes_experiment,
    list_reproductions,
    load_reproduction,
    plan_runs,
    run_name,
)
from torchcaps.experiments.space import Dimension, parse_space
from torchcaps.experiments.statistics import Statistic, format_statistic, summarize
from torchcaps.experiments.sweep import sweep
from torchcaps.experiments.sweep_result import Sweep, SweepTrial, sweep_lines
from torchcaps.experiments.verdicts import Verdict, judge, judge_all

__all__ = [
    "LECTURE_CLAIMS",
    "METRICS",
    "Claim",
    "ClaimState",
    "Claims",
    "Comparison",
    "Dimension",
    "FigureFile",
    "LectureClaim",
    "Metric",
    "NetworkMetrics",
    "NetworkRow",
    "NetworkRun",
    "NetworkSpec",
    "PlannedRun",
    "RecordedNetwork",
    "RepeatedRun",
    "Repetition",
    "Reporter",
    "Reproduction",
    "ReproductionResult",
    "RouterMetrics",
    "RouterRow",
    "RouterRun",
    "RunOutcome",
    "SilentReporter",
    "Statistic",
    "Sweep",
    "SweepTrial",
    "Verdict",
    "changes_experiment",
    "compare",
    "compare_lines",
    "compare_markdown",
    "format_machine",
    "format_statistic",
    "is_lower_better",
    "judge",
    "judge_all",
    "list_reproductions",
    "load_recorded",
    "load_reproduction",
    "parse_space",
    "plan_runs",
    "read_json",
    "recorded_minutes",
    "repeat",
    "repeat_lines",
    "reproduce",
    "reproduction_lines",
    "reproduction_markdown",
    "result_file",
    "run_grid",
    "run_lines",
    "run_name",
    "summarize",
    "summarize_network",
    "summarize_router",
    "sweep",
    "sweep_lines",
    "with_direction",
    "write_json",
    "write_repeat_report",
    "write_reproduction_report",
]
