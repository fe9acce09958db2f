"""The result of a comparison of routers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchcaps.experiments.statistics import Statistic, summarize


@dataclass(frozen=True)
class RouterMetrics:
    """The metrics of one finished run; routing statistics are None for layers without routing.

    Args:
        test_accuracy: Accuracy on the test split.
        val_accuracy: Accuracy on the validation split.
        epoch_seconds: Duration of an epoch.
        seconds: Duration of the training.
        parameters: Number of parameters.
        memory_mb: Peak memory of a training step.
        memory_error: Reason, if the memory could not be measured.
        entropy: Normalised entropy of the coupling into the classes.
        changed: Share of predictions that differ with uniform coupling.
        dead: Share of class capsules that are never active.
        logit_change: Mean change of the logits in an iteration.
        gradient_norm: Norm of the gradient in the class layer.
        tests: Accuracies on other data sets, by name.
        commit: Commit of the source code.
        f1_macro: Mean F1 of the classes on the test split; None for models that do not classify one object per image.
        f1_interval: Its 95 % confidence interval.
    """

    test_accuracy: float
    val_accuracy: float | None
    epoch_seconds: float
    seconds: float
    parameters: int
    memory_mb: float | None = None
    memory_error: str | None = None
    entropy: float | None = None
    changed: float | None = None
    dead: float | None = None
    logit_change: float | None = None
    gradient_norm: float | None = None
    tests: dict[str, float] = field(default_factory=dict)
    commit: str | None = None
    f1_macro: float | None = None
    f1_interval: list[float] | None = None


@dataclass(frozen=True)
class RouterRun:
    """One run of a comparison: metrics if it is finished, the reason if it failed.

    Args:
        seed: Seed of the run.
        status: State of the run.
        metrics: Metrics, if it is finished.
        error: Reason, if it failed.
    """

    seed: int
    status: str
    metrics: RouterMetrics | None = None
    error: str | None = None


@dataclass(frozen=True)
class RouterRow:
    """One router of a comparison: statistics over its finished runs.

    Args:
        router: Name of the router.
        options: Options of the router.
        parameters: Number of parameters.
        memory_mb: Peak memory of a training step.
        memory_error: Reason, if the memory could not be measured.
        test_accuracy: Accuracy on the test split.
        val_accuracy: Accuracy on the validation split.
        epoch_seconds: Duration of an epoch.
        seconds: Duration of the training.
        entropy: Normalised entropy of the coupling into the classes.
        changed: Share of predictions that differ with uniform coupling.
        dead: Share of class capsules that are never active.
        logit_change: Mean change of the logits in an iteration.
        gradient_norm: Norm of the gradient in the class layer.
        tests: Accuracies on other data sets, by name.
        runs: The runs, one per seed.
        f1_macro: Mean F1 of the classes on the test split.
    """

    router: str
    options: dict[str, Any]
    parameters: int | None
    memory_mb: float | None
    memory_error: str | None
    test_accuracy: Statistic | None
    val_accuracy: Statistic | None
    epoch_seconds: Statistic | None
    seconds: Statistic | None
    entropy: Statistic | None
    changed: Statistic | None
    dead: Statistic | None
    logit_change: Statistic | None
    gradient_norm: Statistic | None
    tests: dict[str, Statistic | None]
    runs: list[RouterRun]
    f1_macro: Statistic | None = None


@dataclass(frozen=True)
class Comparison:
    """A comparison of routers: one row per router, and where and how it was made.

    Args:
        recipe: The recipe, as nested tables.
        status: `finished` or `stopped`.
        date: Time of the comparison.
        commit: Commit of the source code.
        versions: Versions of the packages.
        machine: Processor, cores, threads, memory and system.
        seeds: Seeds of the runs.
        tests: Other data sets that the runs were evaluated on.
        rows: One row per router.
    """

    recipe: dict[str, Any]
    status: str
    date: str
    commit: str | None
    versions: dict[str, str]
    machine: dict[str, Any]
    seeds: list[int]
    tests: list[str]
    rows: list[RouterRow]

    @property
    def name(self) -> str:
        """The name of the compared recipe."""
        return self.recipe["name"]


def summarize_router(router: str, options: dict[str, Any], runs: Sequence[RouterRun]) -> RouterRow:
    """Compute the row of a router from its runs.

    Args:
        router: Name of the router.
        options: Options of the router.
        runs: Runs with this router.

    Returns:
        The row.

    Example:
        >>> summarize_router("dynamic", {}, [RouterRun(0, "failed", error="no memory")]).test_accuracy is None
        True
    """
    finished = [run.metrics for run in runs if run.metrics is not None]
    columns = ("test_accuracy", "val_accuracy", "epoch_seconds", "seconds", "entropy", "changed", "dead")
    columns += ("logit_change", "gradient_norm", "f1_macro")
    tests = list(dict.fromkeys(name for metrics in finished for name in metrics.tests))
    return RouterRow(
        router=router,
        options=options,
        parameters=next((metrics.parameters for metrics in finished), None),
        memory_mb=next((metrics.memory_mb for metrics in finished if metrics.memory_mb is not None), None),
        memory_error=next((metrics.memory_error for metrics in finished if metrics.memory_error is not None), None),
        tests={name: summarize(metrics.tests.get(name) for metrics in finished) for name in tests},
        runs=list(runs),
        **{name: summarize(getattr(metrics, name) for metrics in finished) for name in columns},
    )
