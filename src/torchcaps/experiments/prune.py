"""The callback that reports the validation of each epoch to Optuna, and ends poor trials early."""

from __future__ import annotations

import warnings
from typing import Any

from lightning.pytorch import Callback, Trainer
from optuna.trial import Trial

from torchcaps.experiments.sweep_result import PRUNED


class PruneTrial(Callback):
    """Ends a training whose validation is worse than the median of the other trials after the same epoch.

    Args:
        trial: The trial.
        metric: Name of the metric, `val_accuracy` or `val_loss`.
        prune: Whether to end trainings; else the metric is only reported.

    Attributes:
        pruned: Whether the training was ended.
    """

    def __init__(self, trial: Trial, metric: str, *, prune: bool = True) -> None:
        self.trial = trial
        self.metric = metric
        self.prune = prune

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Report the epoch.

        Args:
            trainer: The trainer.
            pl_module: The module.
        """
        value = trainer.callback_metrics.get(self.metric)
        # The last epoch ends the training anyway.
        if value is None or trainer.current_epoch + 1 == trainer.max_epochs:
            return
        with warnings.catch_warnings():
            # A resumed run repeats the epochs after its checkpoint.
            warnings.filterwarnings("ignore", "The reported value is ignored", UserWarning)
            self.trial.report(float(value), trainer.current_epoch + 1)
        if self.prune and self.trial.should_prune():
            # First, so that a process that takes the trial over knows it.
            self.trial.set_user_attr(PRUNED, True)
            trainer.should_stop = True
