"""The pictures of a report, each with the words that stand under it and those for who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from torchcaps import viz
from torchcaps._registry import Registry
from torchcaps.data import to_float
from torchcaps.errors import ConfigError
from torchcaps.eval._pairs import pair_examples
from torchcaps.eval.diagnostics import Diagnosis, diagnose
from torchcaps.eval.evaluate import Evaluation
from torchcaps.eval.perturb import OFFSETS, perturb
from torchcaps.models import ImageModel, KuramotoNet, TransformingAutoencoder
from torchcaps.models.transforming_autoencoder import shift_images
from torchcaps.nn.watch import routing_layers

RIGHT, WRONG = 8, 4


class Picture(NamedTuple):
    """A figure with its title, its caption, and a description in words."""

    figure: viz.Figure
    title: str
    caption: str
    alt: str


class Subject(NamedTuple):
    """What pictures are made of: a model, what it said about some data, how its training went, how it routes.

    Without a `diagnosis` the picture that needs it makes one. `history` is how it routed after each epoch
    (`Run.diagnostics`), where that was kept.
    """

    model: ImageModel
    evaluation: Evaluation
    metrics: Mapping[str, Sequence[float]]
    diagnosis: Diagnosis | None = None
    history: Mapping[str, Sequence[Any]] = {}


# Pictures that one family of models has to itself; the report of any other does not speak of them.
OWN: dict[str, type[ImageModel]] = {"transformations": TransformingAutoencoder, "phases": KuramotoNet}
PICTURES: Registry[Callable[[Subject], Picture]] = Registry("picture")


def examples(evaluation: Evaluation) -> tuple[Tensor, Tensor]:
    """Which images to show, and the class to decode each from: right ones of different classes, then wrong ones twice.

    A wrong one is decoded from its prediction and from its label, as in figure 3 of Sabour et al. 2017. Both are [N].
    """
    labels, predictions = evaluation.labels, evaluation.predictions
    right = evaluation.right.nonzero().squeeze(1)
    # The first image of every class comes before the second of any.
    turns = torch.zeros_like(right)
    for label in labels[right].unique():
        mine = labels[right] == label
        turns[mine] = torch.arange(int(mine.sum()))
    order = (turns * evaluation.data.num_classes + labels[right]).argsort()
    right = right[order][:RIGHT]
    wrong = (~evaluation.right).nonzero().squeeze(1)[:WRONG]
    targets = [predictions[right], torch.stack([predictions[wrong], labels[wrong]], dim=1).flatten()]
    return torch.cat([right, wrong.repeat_interleave(2)]), torch.cat(targets)


def clearest(evaluation: Evaluation) -> int:
    """The image whose class was found with the highest activation; where none was, the most active one of all."""
    best = evaluation.activations.max(dim=-1).values  # [N]
    return int((best + evaluation.right).argmax())


@PICTURES.register("curves")
def _curves(subject: Subject) -> Picture:
    metrics = subject.metrics
    what = "Loss and accuracy" if subject.model.classifies else "Loss"
    ends = [f"{name.replace('_', ' ')} {values[-1]:.4g}" for name, values in metrics.items() if name.startswith("val")]
    return Picture(
        viz.curves(metrics),
        "Learning curves",
        f"{what} after every epoch; the accent colour is the held-out validation part.",
        f"Curves of {what.lower()} over the epochs. At the end: {', '.join(ends) or 'see the table of the run'}.",
    )


@PICTURES.register("confusion")
def _confusion(subject: Subject) -> Picture:
    evaluation = subject.evaluation
    names = evaluation.data.class_names
    mistakes = evaluation.confusion.clone().fill_diagonal_(0)
    row, column = divmod(int(mistakes.argmax()), len(names))
    worst = int(mistakes.max())
    most = f"The most frequent mistake: {names[row]} taken for {names[column]} ({worst} times)." if worst else ""
    return Picture(
        viz.confusion(evaluation.confusion, names),
        "Confusion matrix",
        f"Each row is a true class, each column a prediction; shade is the share of the row. {most}",
        f"Confusion matrix of {len(names)} classes: {int(evaluation.confusion.trace())} of "
        f"{int(evaluation.confusion.sum())} on the diagonal. {most}",
    )


@PICTURES.register("reconstructions")
@torch.inference_mode()
def _reconstructions(subject: Subject) -> Picture:
    model, evaluation = subject.model, subject.evaluation
    if evaluation.data.num_labels == 2:
        return _overlays(subject)
    places, targets = examples(evaluation)
    images = to_float(evaluation.data.batch(places).images)
    decoded = model.decode(model(images), targets)
    labels, predictions = evaluation.labels[places], evaluation.predictions[places]
    names = evaluation.data.class_names
    wrong = int((labels != predictions).sum()) // 2
    figure = viz.reconstructions(images, decoded, labels, predictions, targets, names)
    return Picture(
        figure,
        "Reconstructions",
        "Above each pair: label, prediction, and the class whose capsule was decoded. Wrong predictions, in orange, "
        "are decoded twice: from the prediction and from the label.",
        f"{len(places) - 2 * wrong} test images that were recognised and {wrong} that were not, each above what the "
        "decoder made of its class capsule.",
    )


def _overlays(subject: Subject) -> Picture:
    model, evaluation = subject.model, subject.evaluation
    places, targets = pair_examples(evaluation)
    images = to_float(evaluation.data.batch(places).images)
    capsules = model(images)
    decoded = torch.stack([model.decode(capsules, classes) for classes in targets.unbind(1)], dim=1)
    labels, predictions = evaluation.labels[places], evaluation.predictions[places]
    return Picture(
        viz.overlays(images, decoded, labels, predictions, targets, evaluation.data.class_names),
        "Reconstructions",
        "Two capsules of each image, each decoded by itself, in red and green over the image. Wrong predictions, in "
        "orange, are decoded twice: from the predictions and from the labels. A star marks a class that is neither: "
        "its capsule should hold nothing of the image.",
        f"{len(places)} pictures of test images, each above what the decoder made of two of its class capsules.",
    )


@PICTURES.register("perturbations")
@torch.inference_mode()
def _perturbations(subject: Subject) -> Picture:
    model, evaluation = subject.model, subject.evaluation
    place = clearest(evaluation)
    images = perturb(model, model(to_float(evaluation.data.batch([place]).images)))
    name = evaluation.data.class_names[int(evaluation.activations[place].argmax())]
    return Picture(
        viz.perturbations(images, OFFSETS),
        "What the dimensions stand for",
        f"The capsule of class {name} with one dimension at a time moved from {OFFSETS[0]} to {OFFSETS[-1]}: each row "
        "is a dimension; the framed column is the capsule as it was.",
        f"Grid of {images.shape[0]} rows and {images.shape[1]} columns of decoded images of class {name}, each row "
        "moving one dimension of the capsule.",
    )


@PICTURES.register("coupling")
@torch.inference_mode()
def _coupling(subject: Subject) -> Picture:
    model, evaluation = subject.model, subject.evaluation
    place = clearest(evaluation)
    trace = model.trace(to_float(evaluation.data.batch([place]).images))
    names = evaluation.data.class_names
    name = " and ".join(names[label] for label in evaluation.labels[place].view(-1).tolist())
    before, after = (float(trace.activations[step, 0].max()) for step in (0, -1))
    return Picture(
        viz.coupling(trace, class_names=names),
        "Coupling over the routing iterations",
        f"One test image of class {name}. Above: how strongly the children are coupled to each class, iteration by "
        "iteration; blue is more than an even share, orange less. Below: how undecided the coupling is, and how active "
        "each class capsule.",
        f"Heat maps of the coupling at {trace.iters} iterations, its entropy, and the activations; the largest "
        f"activation goes from {before:.2f} to {after:.2f}.",
    )


@PICTURES.register("diagnostics")
def _diagnostics(subject: Subject) -> Picture:
    found = subject.diagnosis or diagnose(subject.model, subject.evaluation.data)
    table, last = found.to_json(), found.layers[-1]
    changed = "unknown" if last.changed is None else f"{last.changed:.1%}"
    return Picture(
        viz.diagnostics(table["layers"], table["gradient_norms"]),
        "What routing does",
        f"Over {found.count} images, layer by layer: how undecided the coupling is after each iteration, how far the "
        "logits move, which capsules are never active (dead) or hardly coupled to (starved), and how long the gradient "
        f"is. With even coupling into the classes {changed} of the predictions would change.",
        f"Four panels for {len(found.layers)} routing layers. Entropy of the coupling into the classes goes from "
        f"{last.entropy[0]:.3f} to {last.entropy[-1]:.3f}; {last.dead:.0%} of the classes are dead.",
    )


@PICTURES.register("routing_curves")
def _routing_curves(subject: Subject) -> Picture:
    history = subject.history
    figure = viz.routing_curves(history)
    found = zip(*(history[name] for name in ("layer", "iteration", "measure", "value")), strict=True)
    entropies = [((layer, step), value) for layer, step, measure, value in found if measure == "entropy"]
    # The last line is that of the classes at the last iteration of the last epoch.
    classes = [value for which, value in entropies if which == entropies[-1][0]]
    return Picture(
        figure,
        "What routing did while it learned",
        "After every epoch, layer by layer, on a few images of the validation part: how undecided the coupling is and "
        "how far the logits move, the last iteration in full colour; how many predictions would change with even "
        "coupling in a layer, how many of its parents are never active; how long the gradient is.",
        f"Four panels of curves over {len(classes)} epochs. Entropy of the coupling into the classes goes from "
        f"{classes[0]:.3f} to {classes[-1]:.3f}.",
    )


@PICTURES.register("transformations")
@torch.inference_mode()
def _transformations(subject: Subject) -> Picture:
    model, data = cast(TransformingAutoencoder, subject.model), subject.evaluation.data
    # One image of each class, as far as there are so many.
    places = torch.stack([(data.labels == label).nonzero()[0, 0] for label in data.labels.unique()[:RIGHT]])
    images = to_float(data.images[places])
    shift = model.draw_shift(len(images), torch.Generator().manual_seed(1))
    outputs = model.transform(images, shift)
    return Picture(
        viz.transformations(images, shift_images(images, shift), outputs, shift),
        "Images moved by their capsules",
        "Above each column: by how many pixels down and right the image is to be moved. The capsules are told the "
        "shift alone, add it to the positions that they have found, and paint the output.",
        f"{len(images)} test images, each above the image moved by a shift, what the capsules painted, and the "
        "difference of the two.",
    )


@PICTURES.register("phases")
@torch.inference_mode()
def _phases(subject: Subject) -> Picture:
    model, data = cast(KuramotoNet, subject.model), subject.evaluation.data
    place = clearest(subject.evaluation)
    image = to_float(data.images[place : place + 1])
    angles = model.phases(image)[:, 0]  # [R, C, h, w]
    # The channel whose oscillators tell the parts of the image apart best: in the end their phases differ most.
    orders = torch.hypot(angles[-1].cos().mean(dim=(1, 2)), angles[-1].sin().mean(dim=(1, 2)))  # [C]
    channel = int(orders.argmin())
    name = data.class_names[int(data.labels[place])]
    return Picture(
        viz.phases(image[0], angles[:, channel]),
        "Phases of the oscillators",
        f"One test image of class {name}, and the phases of channel {channel} of the first layer of oscillators at its "
        "start and after each iteration: the same colour is the same phase.",
        f"An image of class {name} beside {len(angles)} maps of phases, from the start to the last iteration.",
    )


def lacking(what: str, model: ImageModel) -> str | None:
    """Why a model cannot have this picture, or None when it can."""
    if what in OWN:
        return None if isinstance(model, OWN[what]) else "this model has no " + what
    if not model.classifies and what != "curves":
        return "this model has no classes"
    if what in ("reconstructions", "perturbations") and model.decoder is None:
        return "this model has no decoder"
    if what in ("diagnostics", "routing_curves") and not routing_layers(model):
        return "this model has no routing"
    if what == "coupling" and type(model).trace is ImageModel.trace:
        return "this model has no routing"
    return None


def draw(what: str, subject: Subject) -> Picture:
    """Make one picture by name.

    >>> PICTURES.names("*curves")
    ['curves', 'routing_curves']
    """
    reason = lacking(what, subject.model)
    if reason is not None:
        raise ConfigError(f"{what}: expected a model that has them, got {type(subject.model).__name__} ({reason})")
    return PICTURES[what](subject)
