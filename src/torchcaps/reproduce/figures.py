"""The figures of the papers, drawn from finished runs: labels and runs in, a Figure out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import torch

from torchcaps import viz
from torchcaps._registry import Registry
from torchcaps.data import ImageData
from torchcaps.errors import ConfigError
from torchcaps.eval import Subject, draw, evaluate, withstand
from torchcaps.eval.adversarial import Method
from torchcaps.eval.pictures import lacking
from torchcaps.eval.protocols import affine_digits
from torchcaps.models import ImageModel
from torchcaps.nn import DynamicRouting
from torchcaps.reproduce._answers import group_images
from torchcaps.reproduce._routing import class_router, iterates, mean_changes, view_votes

if TYPE_CHECKING:
    from torchcaps.train import Run

FIGURES: Registry[Callable[[Mapping[str, Run]], viz.Figure]] = Registry("figure")
# So many images of the test part, evenly from the first to the last, where all would take long and say no more.
IMAGES = 500
# Further than any network was trained, to see whether the routing settles.
ITERS = 10
ATTACKS: dict[str, tuple[Method, bool]] = {
    "FGSM": ("fgsm", False),
    "BIM, ten steps": ("bim", False),
    "FGSM, towards another class": ("fgsm", True),
    "BIM, towards another class": ("bim", True),
}


def able(
    what: str, runs: Mapping[str, Run], lack: Callable[[Run, ImageModel], str | None]
) -> dict[str, tuple[Run, ImageModel]]:
    """The runs that a figure can be drawn from, with their networks; where there is none, an error says why."""
    found, reasons = {}, []
    for label, run in runs.items():
        model = run.load_model()
        reason = lack(run, model)
        if reason is None:
            found[label] = (run, model)
        else:
            reasons.append(f"'{label}' ({reason})")
    if not found:
        raise ConfigError(f"{what}: expected a run that it can be drawn from, got {', '.join(reasons) or 'none'}")
    return found


def some(run: Run) -> ImageData:
    """As much of the test part as figures look at that do not need all of it."""
    return run.load_data("test").spread(IMAGES)


@FIGURES.register("reconstructions")
def _reconstructions(runs: Mapping[str, Run]) -> viz.Figure:
    """Right and wrong classifications over what was decoded (Sabour et al. 2017, fig. 3), of the first able run."""
    return _decoded("reconstructions", runs, 1)


@FIGURES.register("overlays")
def _overlays(runs: Mapping[str, Run]) -> viz.Figure:
    """Two digits decoded in red and green, also from a capsule that is neither (fig. 5), of the first able run."""
    return _decoded("overlays", runs, 2)


def _decoded(what: str, runs: Mapping[str, Run], num_labels: int) -> viz.Figure:
    def lack(run: Run, model: ImageModel) -> str | None:
        things = run.load_data("test").num_labels
        other = (
            f"its images have {things} label{'s' * (things > 1)}, not {num_labels}" if things != num_labels else None
        )
        return lacking("reconstructions", model) or other

    run, model = next(iter(able(what, runs, lack).values()))
    # The whole test part: where one in four hundred is wrong, a few images hold no mistakes.
    subject = Subject(model, evaluate(model, run.load_data("test")), run.metrics())
    return draw("reconstructions", subject).figure


@FIGURES.register("perturbations")
def _perturbations(runs: Mapping[str, Run]) -> viz.Figure:
    """Each dimension of a class capsule moved by itself (fig. 4), of the first run with a decoder."""
    run, model = next(iter(able("perturbations", runs, lambda _, model: lacking("perturbations", model)).values()))
    return draw("perturbations", Subject(model, evaluate(model, some(run)), run.metrics())).figure


@FIGURES.register("logit_change")
def _logit_change(runs: Mapping[str, Run]) -> viz.Figure:
    """How far dynamic routing into the classes moves its logits at each iteration (fig. A.1), a line per network.

    Beside it the coupling that follows from them, since logits are sums that go on growing where it has settled. Every
    network goes through ten iterations, however many it was trained with.
    """
    found = able("logit_change", runs, lambda _, m: None if class_router(m) else "no dynamic routing into the classes")
    panels: dict[str, dict[str, viz.Points]] = {"Change of the routing logits": {}, "Change of the coupling": {}}
    for label, (run, model) in found.items():
        router = cast(DynamicRouting, class_router(model))
        changes = mean_changes(model, router, some(run), ITERS).tolist()  # [2][R-1]
        for panel, change in zip(panels.values(), changes, strict=True):
            panel[f"{label} (trained with {router.iters})"] = (range(2, ITERS + 1), change)
    return viz.lines(panels, x="iteration", y="mean change since the one before", scale="log")


@FIGURES.register("training_loss")
def _training_loss(runs: Mapping[str, Run]) -> viz.Figure:
    """The training loss of all runs over the epochs (fig. A.2 has those of 1 and 3 iterations)."""
    panel = {}
    for label, run in runs.items():
        metrics = run.metrics()
        points = zip(metrics.get("epoch", ()), metrics.get("train_loss", ()), strict=True)
        kept = [point for point in points if not math.isnan(point[1])]
        if kept:
            panel[f"{label}, at last {kept[-1][1]:.4g}"] = ([epoch for epoch, _ in kept], [loss for _, loss in kept])
    if not panel:
        raise ConfigError(f"training_loss: expected a run with epochs in metrics.csv, got {', '.join(runs) or 'none'}")
    return viz.lines({"Training loss": panel}, x="epoch")


@FIGURES.register("affine_answers")
def _affine_answers(runs: Mapping[str, Run]) -> viz.Figure:
    """What each network trained on translated digits says of digits under affine maps (section 5.2)."""

    def lack(run: Run, model: ImageModel) -> str | None:
        name = run.recipe.data.name
        return None if name == "translated_mnist" else f"trained on '{name}', not on translated_mnist"

    found = able("affine_answers", runs, lack)
    first, _ = next(iter(found.values()))
    data = affine_digits(first.recipe.data.options.get("source", "mnist")).spread(IMAGES)
    told = {label: evaluate(model, data) for label, (_, model) in found.items()}
    groups = group_images(torch.stack([each.right for each in told.values()]))
    # The number first: a long label loses its end.
    said = {f"{each.accuracy:.1%} {label}": each.predictions for label, each in told.items()}
    headings = {f"{words} ({len(at)} of {len(data)} images of {data.name})": at[:many] for words, many, at in groups}
    images = data.batch(range(len(data))).images / 255
    return viz.answers(images, data.labels, said, headings, data.class_names)


@FIGURES.register("attacks")
def _attacks(runs: Mapping[str, Run]) -> viz.Figure:
    """The accuracy over the size of the change, for each attack (Hinton et al. 2018, section 6), a line per network."""

    def lack(run: Run, model: ImageModel) -> str | None:
        if not model.classifies:
            return "this model has no classes"
        return None if run.load_data("test").num_labels == 1 else "its images have 2 labels, not 1"

    found = able("attacks", runs, lack)
    panels: dict[str, dict[str, viz.Points]] = {title: {} for title in ATTACKS}
    for label, (run, model) in found.items():
        data = run.load_data("test")
        # The first ones, as in the table, which has more of them.
        few = data.subset(range(min(IMAGES, len(data))))
        for title, (method, targeted) in ATTACKS.items():
            row = withstand(model, few, method=method, targeted=targeted)
            panels[title][label] = (row.epsilons, row.accuracy)
    words = f"accuracy on the first {IMAGES} images"
    return viz.lines(panels, x="largest change of a pixel", y=words, scale="share")


@FIGURES.register("vote_plane")
def _vote_plane(runs: Mapping[str, Run]) -> viz.Figure:
    """The votes for the winning class and the second before and after routing, of the first run that iterates."""
    run, model = next(iter(able("vote_plane", runs, lambda _, model: iterates(model)).values()))
    return viz.vote_plane(view_votes(model, evaluate(model, some(run))))
