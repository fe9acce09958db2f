"""A recipe: everything that makes a run, as typed data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torchcaps._registry import nearest
from torchcaps.data import DATASETS, Augment
from torchcaps.errors import ConfigError
from torchcaps.models import MODELS
from torchcaps.nn import LOSSES
from torchcaps.train._shipped import build_all, parse_table, read_table, shipped_names
from torchcaps.train._tables import dump, override

DEFAULT_RECIPE = "digits"


@dataclass(frozen=True)
class ModelRecipe:
    """Which network: a name of `list_models()` and the keyword arguments of its factory."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataRecipe:
    """Which images: a data set's name and options, the size of the global batch, the augmentation in training.

    An epoch is a pass through the data, or `epoch_size` images: for data too large to pass through between two
    validations.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = field(default=128, metadata={"least": 1})
    epoch_size: int | None = field(default=None, metadata={"least": 1})
    augment: Augment = field(default_factory=Augment)


@dataclass(frozen=True)
class LossRecipe:
    """The loss: by name, or the model's own; beside it the reconstruction, where the model has a decoder."""

    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    reconstruction: float = field(default=0.0005, metadata={"least": 0})
    scale: Literal["paper", "released"] = "paper"


@dataclass(frozen=True)
class OptimRecipe:
    """The optimiser and its learning rate over the steps; `decay` and `decay_every` are the exponential schedule's.

    With `average` above 0 the network that is validated and kept is a running mean of the weights: after each step
    this share of it stays (0.999 looks back over some thousand steps).
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = field(default=0.001, metadata={"above": 0})
    weight_decay: float = field(default=0.0, metadata={"least": 0})
    warmup: int = field(default=0, metadata={"least": 0})
    schedule: Literal["constant", "exponential", "cosine"] = "constant"
    decay: float = field(default=0.96, metadata={"above": 0})
    decay_every: int = field(default=2000, metadata={"least": 1})
    average: float = field(default=0.0, metadata={"least": 0})

    def __post_init__(self) -> None:
        if self.average >= 1:
            raise ConfigError(f"average: expected a number below 1, got {self.average!r}")


# Keys of a trainer that change how the same thing is computed, and its numbers by rounding at most.
COMPUTED = ("accelerator", "precision")


@dataclass(frozen=True)
class TrainerRecipe:
    """How long, on what, in which precision, and after how many steps the state is saved.

    `stop_at` ends a run early, after the first epoch with this accuracy on the validation part: so networks are
    compared at the same accuracy.
    """

    epochs: int = field(default=10, metadata={"least": 1})
    stop_at: float | None = field(default=None, metadata={"above": 0})
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = field(default=1, metadata={"least": 1})
    precision: Literal["32-true", "64-true", "bf16-true", "16-mixed", "bf16-mixed"] = "32-true"
    checkpoint_every: int = field(default=100, metadata={"least": 1})


@dataclass(frozen=True)
class Recipe:
    """Everything that makes a run; two runs of one recipe on one machine end with the same weights.

    >>> recipe = load_recipe("digits", ["optim.lr=0.01", "model.options.routing.iters=1"])
    >>> recipe.optim.lr, recipe.model.options["routing"]["iters"]
    (0.01, 1)
    """

    name: str
    model: ModelRecipe
    data: DataRecipe
    description: str = ""
    seed: int = field(default=0, metadata={"least": 0})
    loss: LossRecipe = field(default_factory=LossRecipe)
    optim: OptimRecipe = field(default_factory=OptimRecipe)
    trainer: TrainerRecipe = field(default_factory=TrainerRecipe)

    def __post_init__(self) -> None:
        if self.data.batch_size % self.trainer.devices:
            raise ConfigError(
                f"data.batch_size: expected a multiple of trainer.devices = {self.trainer.devices}, "
                f"got {self.data.batch_size}"
            )

    def to_toml(self) -> str:
        """The recipe as TOML, every value written out; `parse_recipe` reads it back as it was."""
        return dump(asdict(self)) + "\n"


def list_recipes() -> list[str]:
    """The names of the recipes that come with the package.

    >>> "digits" in list_recipes()
    True
    """
    return shipped_names("recipe")


def load_recipe(source: str | Path = DEFAULT_RECIPE, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from a TOML file, or by the name of one that comes with the package, changed by `key=value` texts.

    Unknown keys, wrong types, impossible values and unknown names of models, data sets and losses are all reported at
    once, in one ConfigError.
    """
    table = read_table("recipe", source)
    problems: list[str] = []
    # Names first: a new name takes the options of the old one away, but none that are given beside it.
    for text in sorted(overrides, key=lambda text: not text.partition("=")[0].strip().endswith(".name")):
        try:
            override(table, text)
        except ConfigError as error:
            problems.append(str(error))
    problems += _unknown_names(table)
    return build_all(Recipe, table, problems, f"recipe '{source}'")


def parse_recipe(text: str, origin: str = "recipe") -> Recipe:
    """A recipe from TOML text; `origin` is what an error calls it."""
    return build_all(Recipe, parse_table(text, origin), [], origin)


def from_anywhere(recipe: Recipe) -> Recipe:
    """The recipe with the path of its data made absolute, so that the run can be used from any folder."""
    options = dict(recipe.data.options)
    if isinstance(options.get("path"), str):
        options["path"] = str(Path(options["path"]).absolute())
    return replace(recipe, data=replace(recipe.data, options=options))


def what_it_learns(recipe: Recipe) -> Recipe:
    """The recipe without its name and words, and without what only says how it is computed: accelerator and precision.

    >>> faster = load_recipe("digits", ["trainer.precision=bf16-mixed"])
    >>> what_it_learns(faster) == what_it_learns(load_recipe("digits"))
    True
    """
    plain = TrainerRecipe()
    trainer = replace(recipe.trainer, **{name: getattr(plain, name) for name in COMPUTED})
    return replace(from_anywhere(recipe), name="", description="", trainer=trainer)


def _unknown_names(table: Mapping[str, Any]) -> list[str]:
    problems = []
    for part, registry in (("model", MODELS), ("data", DATASETS), ("loss", LOSSES)):
        inner = table.get(part)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if isinstance(name, str) and name not in registry:
            problems.append(f"{part}.name: unknown {registry.kind} '{name}'{nearest(name, registry)}")
    return problems
