"""Recipes: everything that determines a run, as frozen dataclasses."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from torchcaps._registry import nearest
from torchcaps.config import bundled_names, dump, from_table, override, parse_toml, read_toml
from torchcaps.data import DATASETS, Augment
from torchcaps.errors import ConfigError, TorchcapsError
from torchcaps.models import MODELS
from torchcaps.nn import LOSSES, ROUTERS

DEFAULT_RECIPE = "digits"
# Name of the data of the caller, as `fit(recipe, data=...)` takes them: no registered data set has it.
OWN = "own"
# A name becomes part of a folder: no separators, no "." or "..", nothing that a terminal interprets.
_PLAIN = re.compile(r"\w|\w[\w .+-]{0,98}[\w+-]")


@dataclass(frozen=True)
class ModelRecipe:
    """The network: a name of `list_models()` and the keyword arguments of its factory."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataRecipe:
    """The data.

    Attributes:
        name: A name of `list_data()`.
        options: Options of the data set.
        batch_size: Number of images per step, over all processes.
        epoch_size: Number of images per epoch; by default all.
        per_class: Number of training images of each class, which the seed of the recipe chooses; by default all.
        sampler: `shuffle`, or `balanced` to show all classes equally often.
        workers: Number of processes that read and augment images; 0 does it in the training process. They give the
            same batches.
        augment: Augmentation of the training images.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = field(default=128, metadata={"least": 1})
    epoch_size: int | None = field(default=None, metadata={"least": 1})
    per_class: int | None = field(default=None, metadata={"least": 1})
    sampler: Literal["shuffle", "balanced"] = "shuffle"
    workers: int = field(default=0, metadata={"least": 0})
    augment: Augment = field(default_factory=Augment)


@dataclass(frozen=True)
class LossRecipe:
    """The loss.

    Attributes:
        name: A name of `nn.LOSSES`; by default the model's own.
        options: Its keyword arguments. `weight` may be "balanced": classes count in inverse proportion to their images.
        reconstruction: Weight of the reconstruction loss of models with a decoder.
        scale: Scale of the reconstruction loss, see `nn.ReconstructionLoss`.
    """

    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    reconstruction: float = field(default=0.0005, metadata={"least": 0})
    scale: Literal["paper", "released"] = "paper"


@dataclass(frozen=True)
class OptimRecipe:
    """The optimiser and the schedule of its learning rate.

    Attributes:
        name: The optimiser.
        lr: Learning rate after warm-up.
        weight_decay: Weight decay.
        options: Further options: `betas`, `eps`, `amsgrad` of Adam; `momentum`, `dampening`, `nesterov` of SGD.
        warmup: Number of steps in which the learning rate rises to `lr`.
        schedule: Course of the learning rate after that.
        decay: Factor of the exponential schedule.
        decay_every: Number of steps per factor of the exponential schedule.
        ema_decay: Decay of an exponential moving average of the weights, which is then validated and stored; 0 for
            none.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = field(default=0.001, metadata={"above": 0})
    weight_decay: float = field(default=0.0, metadata={"least": 0})
    options: dict[str, Any] = field(default_factory=dict)
    warmup: int = field(default=0, metadata={"least": 0})
    schedule: Literal["constant", "exponential", "cosine"] = "constant"
    decay: float = field(default=0.96, metadata={"above": 0})
    decay_every: int = field(default=2000, metadata={"least": 1})
    ema_decay: float = field(default=0.0, metadata={"least": 0})

    def __post_init__(self) -> None:
        if self.ema_decay >= 1:
            raise ConfigError(f"ema_decay: expected a number below 1, got {self.ema_decay!r}")


# Keys of `trainer` that change results by rounding at most.
COMPUTE_KEYS = ("accelerator", "devices", "nodes", "strategy", "timeout", "precision", "logger")
LOGGERS = ("csv", "mlflow", "tensorboard", "wandb")


@dataclass(frozen=True)
class TrainerRecipe:
    """The training loop.

    Attributes:
        epochs: Largest number of epochs.
        target_accuracy: Validation accuracy after which the run ends early.
        patience: Number of epochs without a better validation after which the run ends early.
        accelerator: Device type.
        devices: Number of processes on each host. Under torchrun, srun and mpirun it is the number that they start.
        nodes: Number of hosts; more than one needs torchrun or srun.
        strategy: `ddp`, a copy of the weights in each process, or `fsdp2`, which divides them over the processes.
        timeout: Seconds after which a process that waits for another one gives up.
        precision: Precision of Lightning.
        checkpoint_every: Number of steps between checkpoints.
        logger: Loggers: `tensorboard`, `mlflow`, `wandb`, `csv`, or a list of them.
    """

    epochs: int = field(default=10, metadata={"least": 1})
    target_accuracy: float | None = field(default=None, metadata={"above": 0})
    patience: int | None = field(default=None, metadata={"least": 1})
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = field(default=1, metadata={"least": 1})
    nodes: int = field(default=1, metadata={"least": 1})
    strategy: Literal["ddp", "fsdp2"] = "ddp"
    timeout: float = field(default=600.0, metadata={"above": 0})
    precision: Literal["32-true", "64-true", "bf16-true", "16-mixed", "bf16-mixed"] = "32-true"
    checkpoint_every: int = field(default=100, metadata={"least": 1})
    logger: str | list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self.loggers:
            if name not in LOGGERS:
                raise ConfigError(f"logger: expected {', '.join(LOGGERS)}, got {name!r}{nearest(str(name), LOGGERS)}")

    @property
    def loggers(self) -> tuple[str, ...]:
        """Names of the loggers; on the command line several are separated by commas."""
        names = self.logger.split(",") if isinstance(self.logger, str) else self.logger
        return tuple(name.strip() if isinstance(name, str) else name for name in names)


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a run: two runs of one recipe on one machine end with the same weights.

    Attributes:
        name: Name, also of the run folder; a plain file name.
        model: The network.
        data: The data.
        description: One line for `torchcaps recipes`.
        seed: Seed of weights, order of the images and augmentation.
        loss: The loss.
        optim: The optimiser.
        trainer: The training loop.

    Example:
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
        if not _PLAIN.fullmatch(self.name):
            raise ConfigError(
                f"name: expected letters, digits, '-', '_', '.' and spaces, as in a file name, got {self.name!r}"
            )
        check_batch_size(self, self.trainer.devices * self.trainer.nodes)

    def to_toml(self) -> str:
        """Return the recipe as TOML with every value; `parse_recipe` reads it.

        Returns:
            The text.
        """
        return dump(asdict(self)) + "\n"


def check_batch_size(recipe: Recipe, world: int) -> None:
    """Raise ConfigError if the images of a step cannot be divided equally among the processes.

    Args:
        recipe: The recipe.
        world: Number of processes.

    Raises:
        ConfigError: If the batch size is not a multiple of it.
    """
    if recipe.data.batch_size % world:
        raise ConfigError(
            f"data.batch_size: expected a multiple of the {world} processes (trainer.devices), "
            f"got {recipe.data.batch_size}"
        )


def list_recipes() -> list[str]:
    """Return the names of the bundled recipes.

    Returns:
        The names in alphabetical order.

    Example:
        >>> "digits" in list_recipes()
        True
    """
    return bundled_names("recipe")


def load_recipe(source: str | Path = DEFAULT_RECIPE, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe from a TOML file, or a bundled one by name.

    Args:
        source: A path that ends in .toml, or a name of `list_recipes()`.
        overrides: Changes such as "optim.lr=0.01".

    Returns:
        The recipe.

    Raises:
        ConfigError: If keys, types, values or names of models, data sets and losses are wrong: all in one error.
        UnknownNameError: If no recipe has the name.

    Example:
        >>> load_recipe("digits", ["trainer.epochs=2"]).trainer.epochs
        2
    """
    table = read_toml("recipe", source)
    problems: list[str] = []
    overrides = full_keys(table, overrides)
    known = known_keys(table, overrides)
    # Names first: a new name clears the options of the old one, but not those of other overrides.
    for text in sorted(overrides, key=lambda text: not text.partition("=")[0].strip().endswith(".name")):
        key, equals, _ = text.partition("=")
        if equals and _is_unknown(key.strip()):
            problems.append(f"unknown key '{key.strip()}'{_suggest(key.strip(), known)}")
            continue
        try:
            override(table, text)
        except ConfigError as error:
            problems.append(str(error))
    problems += _unknown_names(table)
    return from_table(Recipe, table, problems, f"recipe '{source}'")


def full_keys(table: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Complete the keys of overrides that are unambiguous without their table: `epochs=5` is `trainer.epochs=5`.

    Keys are those of a recipe and the options of its model and its data set.

    Args:
        table: Recipe with the names of model and data set, before the overrides.
        overrides: Changes such as "epochs=5".

    Returns:
        The changes with full keys; a key that is unknown or ambiguous stays.

    Example:
        >>> full_keys({"data": {"name": "folder"}}, ["epochs=5", "path=my/images", "optim.lr=0.1"])
        ['trainer.epochs=5', 'data.options.path=my/images', 'optim.lr=0.1']
    """
    known = known_keys(table, overrides)
    completed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        found = [full for full in known if full.rpartition(".")[2] == key.strip()]
        plain = "." in key or key.strip() in {field.name for field in fields(Recipe)} or len(found) != 1
        completed.append(text if plain else f"{found[0]}{equals}{value}")
    return completed


def known_keys(table: Mapping[str, Any], overrides: Sequence[str] = ()) -> list[str]:
    """Return the dotted keys of all values of a recipe, with the options of its model, its router and its data set.

    Args:
        table: Recipe with the names of model and data set, before the overrides.
        overrides: Changes, which may name another model, router or data set.

    Returns:
        The keys.

    Example:
        >>> keys = known_keys({"model": {"name": "capsnet"}, "data": {"name": "folder"}})
        >>> [key for key in keys if key.endswith((".iters", ".path", ".epochs"))]
        ['trainer.epochs', 'model.options.routing.iters', 'data.options.path']
    """
    names = {key: table[key].get("name") for key in ("model", "data") if isinstance(table.get(key), Mapping)}
    options = table["model"].get("options") if isinstance(table.get("model"), Mapping) else None
    router = options.get("routing") if isinstance(options, Mapping) else None
    names["router"] = router.get("name") if isinstance(router, Mapping) else router
    chosen = {"model.name": "model", "data.name": "data"}
    chosen |= {"model.options.routing": "router", "model.options.routing.name": "router"}
    for text in overrides:
        key, _, value = text.partition("=")
        if key.strip() in chosen:
            names[chosen[key.strip()]] = value.strip()
    return [*_leaves(Recipe), *_option_keys(names)]


def is_recipe_key(key: str) -> bool:
    """Return whether a name is a key of recipes: a full one, or the last part of one.

    Args:
        key: The name.

    Returns:
        True also for options of any model, router and data set.

    Example:
        >>> is_recipe_key("epochs"), is_recipe_key("optim.lr"), is_recipe_key("iters"), is_recipe_key("colour")
        (True, True, True, False)
    """
    return not _is_unknown(key) if "." in key else key in short_recipe_keys()


def short_recipe_keys() -> set[str]:
    """Return the last parts of the keys of recipes, with the options of all models, routers and data sets.

    Returns:
        The names.

    Example:
        >>> {"epochs", "iters"} <= short_recipe_keys()
        True
    """
    names = {full.rpartition(".")[2] for full in _leaves(Recipe)}
    names |= {name for model in MODELS for name in list(inspect.signature(MODELS[model]).parameters)[2:]}
    names |= {name for router in ROUTERS for name in inspect.signature(ROUTERS[router]).parameters}
    return names | {name for data in DATASETS for name in DATASETS[data].options}


def _is_unknown(key: str) -> bool:
    """Return whether a recipe has no such key; the options of models, losses and data sets are checked by their own."""
    cls: Any = Recipe
    for part in key.split("."):
        if not is_dataclass(cls):
            # A table of options, or a value with a key below it, which `override` reports.
            return False
        hints = get_type_hints(cls)
        if part not in hints:
            return True
        cls = hints[part]
    return False


def _suggest(key: str, known: Sequence[str]) -> str:
    """Return a hint with the full key: the one with the same last part, else the most similar."""
    leaf = key.rpartition(".")[2]
    same = [full for full in known if full.rpartition(".")[2] == leaf]
    if same:
        return "; did you mean " + " or ".join(f"'{full}'" for full in same) + "?"
    leaves: dict[str, str] = {}
    for full in known:
        leaves.setdefault(full.rpartition(".")[2], full)
    close = difflib.get_close_matches(leaf, leaves, n=1)
    return f"; did you mean '{leaves[close[0]]}'?" if close else "; `torchcaps recipes NAME` lists all keys"


def _leaves(cls: Any, at: str = "") -> list[str]:
    """Return the dotted keys of the values of a recipe."""
    keys = []
    for name, hint in get_type_hints(cls).items():
        keys += _leaves(hint, f"{at}{name}.") if is_dataclass(hint) else [at + name]
    return keys


def _option_keys(names: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys of the options of a model, its router and a data set."""
    keys = []
    if names.get("model") in MODELS:
        options = dict(list(inspect.signature(MODELS[names["model"]]).parameters.items())[2:])
        keys += [f"model.options.{option}" for option in options]
        default = options["routing"].default if "routing" in options else None
        router = names.get("router") or (default if isinstance(default, str) else None)
        if "routing" in options and isinstance(router, str) and router in ROUTERS:
            keys += [f"model.options.routing.{option}" for option in inspect.signature(ROUTERS[router]).parameters]
    if names.get("data") in DATASETS:
        keys += [f"data.options.{option}" for option in DATASETS[names["data"]].options]
    return keys


def plain_name(text: str) -> str:
    """Return a text as the name of a recipe: without what a file name must not have.

    Args:
        text: The text.

    Returns:
        The name.

    Example:
        >>> plain_name("my: photos/2026?"), plain_name("")
        ('my_ photos_2026', 'recipe')
    """
    name = re.sub(r"[^\w .+-]", "_", text)[:100].strip(" ._") or "recipe"
    return name if _PLAIN.fullmatch(name) else "recipe"


def parse_recipe(text: str | bytes, origin: str = "recipe") -> Recipe:
    """Read a recipe from TOML text.

    Args:
        text: The text, or its UTF-8 bytes.
        origin: Name of the source in error messages.

    Returns:
        The recipe.

    Raises:
        ConfigError: If the text is not TOML or not a recipe.

    Example:
        >>> parse_recipe(load_recipe("digits").to_toml()).data.name
        'digits'
    """
    return from_table(Recipe, parse_toml(text, origin), [], origin)


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """Make the paths of data and backbone weights absolute, so that the run can be used from any folder.

    Args:
        recipe: The recipe.

    Returns:
        The recipe with absolute paths.
    """
    options = dict(recipe.data.options)
    if isinstance(options.get("path"), str):
        options["path"] = str(Path(options["path"]).expanduser().absolute())
    model = dict(recipe.model.options)
    if isinstance(model.get("weights"), str):
        model["weights"] = str(Path(model["weights"]).expanduser().absolute())
    data = replace(recipe.data, options=options)
    return replace(recipe, data=data, model=replace(recipe.model, options=model))


@contextmanager
def checking_options(table: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Turn an error of a function that gets options of a recipe into a ConfigError that names their table.

    Args:
        table: The table of the recipe.
        options: The options.

    Yields:
        Nothing.

    Raises:
        ConfigError: If the block fails with an error that is not one of torchcaps.

    Example:
        >>> with checking_options("loss.options", {"margin": "x"}):
        ...     float("x")
        Traceback (most recent call last):
        torchcaps.errors.ConfigError: loss.options: expected valid values, got {'margin': 'x'} (could not convert ...
    """
    try:
        yield
    except TorchcapsError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{table}: expected valid values, got {options!r} ({reason})") from error


def learning_settings(recipe: Recipe) -> Recipe:
    """Return a recipe without its name, its description and what changes results by rounding at most.

    Args:
        recipe: The recipe.

    Returns:
        A recipe that is equal for experiments with the same settings.

    Example:
        >>> faster = load_recipe("digits", ["trainer.precision=bf16-mixed"])
        >>> learning_settings(faster) == learning_settings(load_recipe("digits"))
        True
    """
    plain = TrainerRecipe()
    trainer = replace(recipe.trainer, **{name: getattr(plain, name) for name in COMPUTE_KEYS})
    return replace(with_absolute_paths(recipe), name="settings", description="", trainer=trainer)


def recipe_hash(recipe: Recipe) -> str:
    """Return a hash of everything that the states of a run depend on.

    Name, description, devices, precision, loggers, workers, the number of epochs, the patience and the number of steps
    between checkpoints are left out: a run may be extended, or continued on other devices.

    Args:
        recipe: The recipe.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> first, second = (load_recipe("digits", [f"seed={seed}"]) for seed in (0, 1))
        >>> recipe_hash(first) == recipe_hash(second)
        False
    """
    plain, settings = TrainerRecipe(), learning_settings(recipe)
    trainer = replace(settings.trainer, epochs=plain.epochs, patience=None, checkpoint_every=plain.checkpoint_every)
    settings = replace(settings, trainer=trainer, data=replace(settings.data, workers=0))
    return hashlib.sha256(settings.to_toml().encode("utf-8")).hexdigest()


def _unknown_names(table: Mapping[str, Any]) -> list[str]:
    problems = []
    for key, registry in (("model", MODELS), ("data", DATASETS), ("loss", LOSSES)):
        inner = table.get(key)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if isinstance(name, str) and name not in registry:
            problems.append(f"{key}.name: unknown {registry.kind} '{name}'{nearest(name, registry)}")
    return problems
