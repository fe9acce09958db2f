"""`torchcaps eval`: how good a trained network is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from torchcaps.cli._protocol import run_protocol
from torchcaps.cli._verb import Verb
from torchcaps.cli._words import add_run, read_options
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.data import ImageData
    from torchcaps.eval import Diagnosis
    from torchcaps.models import ImageModel
    from torchcaps.train import Run


def _configure(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of the data set given by --data")
    parser.add_argument("--split", default="test", help="which part: train, val, test or train+val (default: test)")
    parser.add_argument(
        "--crops",
        type=int,
        choices=(1, 13),
        default=1,
        help="1: the centre of each image; 13: also 12 places around it, averaged (for a run that trains on crops)",
    )
    parser.add_argument(
        "--diagnostics", action="store_true", help="also what routing does: entropy, changed predictions, dead capsules"
    )
    parser.add_argument(
        "--data", metavar="NAME", help="another data set than the run's own (`torchcaps data` lists them)"
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="corruptions; overlap (of a run on multimnist), affine (translated_mnist), viewpoints (smallnorb)",
    )


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.data import CROPS_13
    from torchcaps.eval import diagnose, evaluate, save_evaluation
    from torchcaps.train import Run

    run = Run.open(args.run)
    if args.protocol is not None:
        if args.data is not None or args.options or args.split != "test" or args.crops != 1:
            raise ConfigError("--protocol: expected nothing but the run, whose test part it takes, got more words")
        run_protocol(run, args.protocol, out)
        return 0
    model = run.load_model()
    if args.data is None and args.options:
        raise ConfigError(f"option: expected --data NAME before options of a data set, got '{args.options[0]}'")
    many = args.crops == 13
    if many and (args.data is not None or not run.recipe.data.augment.crop):
        raise ConfigError("--crops: expected the own data of a run that trains on crops, got another")
    if many and args.diagnostics:
        raise ConfigError("--diagnostics: expected --crops 1, got --crops 13 (routing is watched on one view)")
    if args.data is None:
        data = run.load_data(args.split, stored=many)
    else:
        data = _other_data(args.data, args.split, read_options(args.options), model)
    _check_classes(run, data)
    with out.progress("testing") as progress:
        evaluation = evaluate(model, data, crops=CROPS_13 if many else None, progress=progress)
    if args.data is None and args.split == "test" and not many:
        save_evaluation(run, evaluation)
    diagnosis = None
    if args.diagnostics:
        with out.progress("diagnosing") as progress:
            diagnosis = diagnose(model, data, progress=progress)
    found = {} if diagnosis is None else {"diagnostics": diagnosis.to_json()}
    out.document({"run": run.path, "crops": args.crops, **evaluation.summary(), **found})
    out.say(f"{evaluation.words} on {evaluation.count:,} images of {data.name}, {data.split}", style="bold")
    if not model.classifies:
        return 0
    rows = zip(evaluation.per_class.items(), evaluation.confusion.sum(dim=1).tolist(), strict=True)
    shares = [(name, count, "" if share is None else f"{share:.2%}") for (name, share), count in rows]
    out.table(("class", "images", "right"), shares)
    if diagnosis is not None:
        _say_diagnosis(diagnosis, out)
    return 0


def _say_diagnosis(diagnosis: Diagnosis, out: Output) -> None:
    if not diagnosis.layers:
        out.say("this model has no routing")
        return
    out.say(f"routing on {diagnosis.count} images; entropy 1 is even coupling, changed is against it")
    rows = []
    for layer in diagnosis.layers:
        entropy, moved = (" ".join(f"{value:.3g}" for value in each) for each in (layer.entropy, layer.logit_change))
        changed = "" if layer.changed is None else f"{layer.changed:.1%}"
        gradient = f"{diagnosis.gradient_norms.get(layer.name, 0.0):.3g}"
        unused = (f"{layer.dead:.0%}", f"{layer.starved:.0%}")
        rows.append((layer.name, layer.router, entropy, moved or "one pass", changed, *unused, gradient))
    out.table(("layer", "router", "entropy", "logits moved", "changed", "dead", "starved", "gradient"), rows)


def _other_data(name: str, split: str, options: dict[str, Any], model: ImageModel) -> ImageData:
    """A data set by name; one that takes any image is asked for the size and channels that the model knows."""
    from torchcaps.data import DATASETS, load_data

    channels, height, width = model.image_shape
    for option, value in (("image_size", [height, width]), ("channels", channels)):
        if option in DATASETS[name].options:
            options.setdefault(option, value)
    return load_data(name, split, **options)


def _check_classes(run: Run, data: ImageData) -> None:
    known = run.record.get("class_names", list(data.class_names))
    if known != list(data.class_names):
        raise ConfigError(
            f"data: expected the classes that the run was trained on ({', '.join(known)}), "
            f"got those of {data.name} ({', '.join(data.class_names)})"
        )


VERB = Verb(
    name="eval",
    summary="test a trained network, class by class",
    description="Runs the network of a finished run over a part of its data, by default the test part that no "
    "choice was made on, and says which share of each class it found. With --data it is tested on "
    "other images of the same classes, with --protocol in one of the ways of the papers.",
    examples=(
        ("torchcaps eval runs/NAME", "the held-out test part"),
        ("torchcaps eval runs/NAME --diagnostics", "and what routing does in each layer"),
        ("torchcaps eval runs/NAME --data folder path=my/pictures", "images of your own"),
        ("torchcaps eval runs/NAME --protocol corruptions", "noise, blur, occlusion and more, at five severities"),
    ),
    configure=_configure,
    run=_run,
)
