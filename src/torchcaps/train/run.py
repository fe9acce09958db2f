"""The run folder: a recipe, what came of it, and where it came from."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchcaps.data import ImageData, load_data
from torchcaps.errors import CheckpointError
from torchcaps.models import ImageModel, create_model
from torchcaps.models._weights import load_weights
from torchcaps.train._diagnostics import from_csv
from torchcaps.train.recipe import Recipe, parse_recipe


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one move, so that nobody ever finds half of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def write_metrics(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write all rows to metrics.csv; what a row does not have, as one of an older version may, is NaN."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    if names:
        table = csv.DictWriter(text, names, restval="nan", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    write_atomically(folder / "metrics.csv", text.getvalue())


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Run:
    """A run folder.

    recipe.toml (every value written out), run.json (`record`), metrics.csv (`metrics()`), diagnostics.csv
    (`diagnostics()`), weights.safetensors (the chosen weights, once it is finished), checkpoints/, pictures/.
    """

    path: Path
    recipe: Recipe

    @classmethod
    def create(cls, recipe: Recipe, folder: str | Path | None = None) -> Run:
        """Make the folder of a new run; without a name it is runs/<recipe>-<time>."""
        path = _fresh_path(recipe.name) if folder is None else Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            hint = (
                "it holds a run; resume it, or choose another folder" if (path / "run.json").exists() else "not empty"
            )
            raise CheckpointError(f"folder: expected a new or empty folder, got '{path}' ({hint})")
        for part in ("checkpoints", "pictures"):
            (path / part).mkdir(parents=True, exist_ok=True)
        write_atomically(path / "recipe.toml", recipe.to_toml())
        return cls(path, recipe)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """A run that is there already."""
        path = Path(path)
        file = path / "recipe.toml"
        if not file.is_file() or not (path / "run.json").is_file():
            raise CheckpointError(f"run: expected a run folder with recipe.toml and run.json, got '{path}'")
        return cls(path, parse_recipe(file.read_text(encoding="utf-8"), str(file)))

    def change(self, recipe: Recipe) -> Run:
        """The same folder with another recipe."""
        write_atomically(self.path / "recipe.toml", recipe.to_toml())
        return Run(self.path, recipe)

    @property
    def record(self) -> dict[str, Any]:
        """What run.json says: status, seed, versions, commit, machine, times, results."""
        file = self.path / "run.json"
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"run: expected JSON, got '{file}' ({error})") from None

    def update_record(self, **values: Any) -> None:
        """Set values in run.json."""
        record = self.record if (self.path / "run.json").exists() else {}
        write_atomically(self.path / "run.json", json.dumps({**record, **values}, indent=2) + "\n")

    @property
    def status(self) -> str:
        """running (or killed), stopped, failed, finished."""
        return self.record["status"]

    @property
    def results(self) -> dict[str, Any]:
        """What a finished run came to: the test's accuracy, the best and the final epoch; else empty."""
        return self.record.get("results", {})

    @property
    def pictures(self) -> Path:
        """The folder for pictures."""
        return self.path / "pictures"

    @property
    def checkpoints(self) -> Path:
        """The folder of the states that a run can go on from."""
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        """The file of the chosen weights, there once the run is finished."""
        return self.path / "weights.safetensors"

    def metrics(self) -> dict[str, list[float]]:
        """The columns of metrics.csv, one value per epoch: epoch, step, train_loss, val_loss, val_accuracy, lr, ..."""
        file = self.path / "metrics.csv"
        if not file.exists():
            return {}
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        return {name: [float(row[name]) for row in rows] for name in rows[0]} if rows else {}

    def diagnostics(self) -> dict[str, list[Any]]:
        """The columns of diagnostics.csv, one value per epoch, layer, iteration and measure; empty for older runs.

        They are `epoch`, `layer`, `iteration` (from 1; None for what is said of all), `measure` (`entropy`,
        `logit_change`, `changed`, `dead`, `starved`, `gradient_norm`) and `value`.
        """
        file = self.path / "diagnostics.csv"
        return from_csv(file.read_text(encoding="utf-8")) if file.exists() else {}

    def load_data(self, split: str, *, stored: bool = False) -> ImageData:
        """One part of the data of the run, cropped to what the model sees unless asked for as stored."""
        data = load_data(self.recipe.data.name, split, **self.recipe.data.options)
        size = self.recipe.data.augment.crop
        return data if stored or not size else data.cropped(size)

    def load_model(self) -> ImageModel:
        """The trained model, ready to answer."""
        if not self.weights.exists():
            raise CheckpointError(
                f"run: expected a finished run, got '{self.path}' (status '{self.status}'; resume it)"
            )
        record = self.record
        model = create_model(
            self.recipe.model.name, tuple(record["image_shape"]), record["num_classes"], **self.recipe.model.options
        )
        load_weights(model, self.weights)
        return model.eval()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, so that only one process trains in it; the lock ends with the process, however that ends."""
        try:
            import fcntl
        except ImportError:
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(f"run: expected a folder that nobody trains in, got '{self.path}'") from None
            yield


def _fresh_path(name: str) -> Path:
    stamp = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    taken = [Path("runs") / stamp, *(Path("runs") / f"{stamp}-{number}" for number in range(2, 1000))]
    return next(path for path in taken if not path.exists())
