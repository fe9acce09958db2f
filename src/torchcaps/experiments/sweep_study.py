"""The trials of a sweep in Optuna: a journal in the folder, which any number of processes and hosts share.

Trial `k` of a sweep is a work item that one process claims. The process asks Optuna for values, and stores the number
of the item with them. A process that takes the item over finds the trial and continues with the same values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from torchcaps.errors import CheckpointError, DataError
from torchcaps.experiments.space import KINDS, Dimension

JOURNAL = "journal.log"
Direction = Literal["maximize", "minimize"]
# User attribute of a trial: the number of its work item.
SLOT = "slot"
# What Optuna raises for a journal that it cannot read.
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, AssertionError)


class SweepStudy:
    """The study of one sweep.

    Args:
        folder: The folder of the sweep.
        dimensions: The search space.
        direction: Whether larger or smaller values are better.
        seed: Seed of the search. With one process the same seed gives the same values.
        grid: All combinations of choices, in order, if each is to be tried once; None searches.
        startup: Number of random trials before the search.
        warmup: Number of epochs that every trial gets before it may be pruned.

    Raises:
        DataError: If the journal is damaged.
        CheckpointError: If the journal is a symbolic link.
    """

    def __init__(
        self,
        folder: Path,
        dimensions: Sequence[Dimension],
        *,
        direction: Direction,
        seed: int,
        grid: Sequence[Sequence[str]] | None = None,
        startup: int = 10,
        warmup: int = 1,
    ) -> None:
        # Absolute: the lock of the journal is a symbolic link to it.
        path = (folder / JOURNAL).absolute()
        if path.is_symlink():
            raise CheckpointError(f"folder: expected a journal of a sweep, got the symbolic link '{path}'")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._path, self._seed, self._grid, self._startup = path, seed, grid, startup
        self._distributions = {dimension.key: _distribution(dimension) for dimension in dimensions}
        try:
            self._study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(path))),
                study_name="sweep",
                direction=direction,
                pruner=optuna.pruners.MedianPruner(n_startup_trials=min(startup, 5), n_warmup_steps=warmup),
                load_if_exists=True,
            )
        except _DAMAGED as error:
            raise DataError(f"{path}: expected the journal of a sweep, got an error ({error})") from None

    def begin(self, slot: int) -> Trial:
        """Return the trial of a work item: the one that an earlier process began, or a new one.

        Args:
            slot: Number of the item.

        Returns:
            The trial, with all values.
        """
        known = self.find(slot)
        if known is None and self._grid is not None:
            values = dict(zip(self._distributions, self._grid[slot], strict=True))
            made = create_trial(
                state=TrialState.RUNNING,
                params=values,
                distributions=self._distributions,
                user_attrs={SLOT: slot},
            )
            self._study.add_trial(made)
            known = self.find(slot)
        if known is not None:
            return Trial(self._study, known._trial_id)
        # One generator per item: with one for all, processes that start at once would try the same values.
        digest = hashlib.sha256(f"{self._seed} {slot}".encode()).digest()
        self._study.sampler = optuna.samplers.TPESampler(
            seed=int.from_bytes(digest[:4], "little"), n_startup_trials=self._startup
        )
        trial = self._study.ask(self._distributions)
        trial.set_user_attr(SLOT, slot)
        return trial

    def find(self, slot: int) -> FrozenTrial | None:
        """Return the trial of a work item, if it has begun.

        Args:
            slot: Number of the item.

        Returns:
            The trial as it is now.
        """
        return next((trial for trial in self._trials() if trial.user_attrs.get(SLOT) == slot), None)

    def finish(self, trial: Trial, value: float | None, state: str, **about: Any) -> None:
        """Record the end of a trial, unless it is recorded already.

        Args:
            trial: The trial.
            value: Its result.
            state: `finished`, `pruned` or `failed`.
            **about: Further values to record.
        """
        for name, item in about.items():
            trial.set_user_attr(name, item)
        states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        self._study.tell(trial, value if state == "finished" else None, state=states[state], skip_if_finished=True)

    def importance(self) -> dict[str, float]:
        """Return how much of the variance of the results each value of the recipe explains (fANOVA).

        Returns:
            Shares that sum to 1, the largest first; empty where there are too few finished trials, or all results are
            equal.
        """
        done = [trial for trial in self._trials() if trial.state == TrialState.COMPLETE]
        varied = [key for key in self._distributions if len({str(trial.params[key]) for trial in done}) > 1]
        if len(done) < 4 or not varied or len({trial.value for trial in done}) < 2:
            return {}
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        return optuna.importance.get_param_importances(self._study, evaluator=evaluator, params=varied)

    def _trials(self) -> list[FrozenTrial]:
        try:
            return self._study.get_trials(deepcopy=False)
        except _DAMAGED as error:
            raise DataError(f"{self._path}: expected the journal of a sweep, got an error ({error})") from None


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    assert dimension.low is not None
    assert dimension.high is not None
    whole, log = KINDS[dimension.kind]
    if whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=log)
    return FloatDistribution(dimension.low, dimension.high, log=log)
