"""`torchcaps eval`: evaluate a trained network."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.cli._args import add_run, read_options, split_words
from torchcaps.cli._eval_protocol import run_protocol
from torchcaps.cli._metrics import compare_runs, print_metrics
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.data import ImageDataset
    from torchcaps.diagnostics import Snapshot
    from torchcaps.train import Run


def _configure(parser: ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RUN key=value",
        help="a second run to compare with, on the same test images or by the same protocol; options of the data set "
        "given by --data, or of the protocol given by --protocol",
    )
    parser.add_argument(
        "--split",
        help="train, val, test or train+val; all images of a folder (default: test; all for another folder)",
    )
    parser.add_argument(
        "--crops",
        type=int,
        choices=(1, 13),
        default=1,
        help="1: the centre crop of each image; 13: the mean over 13 crops (for a run that trains on crops)",
    )
    parser.add_argument(
        "--diagnostics",
        action="store_true",
        help="also measure the routing: entropy, changed predictions, dead capsules",
    )
    parser.add_argument("--data", metavar="NAME", help="evaluate on another data set (`torchcaps data` lists them)")
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="corruptions; ood (are images of other data sets recognised as such?); adversarial (are attacked images? "
        "options: attacks=fgsm,pgd,reconstructive epsilon=0.3 targeted=true images=300); pose (factors of the images); "
        "faithfulness (of explanations); overlap (for a run on multimnist), affine "
        "(translated_mnist), viewpoints (smallnorb); several runs are compared",
    )


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.data import CROPS_13
    from torchcaps.diagnostics import diagnose
    from torchcaps.evaluation import evaluate, findings
    from torchcaps.train import Run

    others, options = split_words(args.words)
    if others and args.protocol is None:
        _check_comparison(args, others, options)
        compare_runs(args.run, others[0], out)
        return 0
    run = Run.open(args.run)
    if args.protocol is not None:
        if args.data is not None or args.split not in (None, "test") or args.crops != 1:
            raise ConfigError(
                "--protocol: expected no other data, split or crops, got more arguments (it uses the test set)"
            )
        run_protocol([run, *map(Run.open, others)], args.protocol, read_options(options), out)
        return 0
    model = run.context.model
    split = args.split or ("all" if _is_other_folder(args.data, options, run) else "test")
    if args.data is None and options:
        raise ConfigError(f"option: expected --data NAME before options of a data set, got '{options[0]}'")
    many = args.crops == 13
    if many and (args.data is not None or not run.recipe.data.augment.crop):
        raise ConfigError("--crops: expected 1, got 13 (13 crops need the data of a run that trains on crops)")
    if many and args.diagnostics:
        raise ConfigError("--diagnostics: expected --crops 1, got --crops 13 (routing is measured on one crop)")
    if args.data is None:
        data = run.context.data(split, stored=many)
    else:
        data = _other_data(args.data, split, read_options(options), run)
    _check_classes(run, data)
    with out.progress("testing") as progress:
        if args.data is None and split == "test" and not many:
            # The test split was evaluated at the end of training.
            evaluation = run.context.evaluate(progress)
        else:
            evaluation = evaluate(model, data, crops=CROPS_13 if many else None, progress=progress)
    diagnosis = None
    if args.diagnostics:
        with out.progress("diagnosing") as progress:
            diagnosis = diagnose(model, data, progress=progress)
    found = {} if diagnosis is None else {"diagnostics": diagnosis.to_json()}
    out.document({"run": run.path, "crops": args.crops, **evaluation.summary(), **found})
    out.say(f"{evaluation.headline} on {evaluation.count:,} images of {data.name}, {data.split}", style="bold")
    if args.data == "folder" and args.split is None and split == "all":
        out.say("(all images, because the run was trained on another folder; --split test takes its test split)")
    elif args.data == "folder" and split != "all":
        out.say("(the same images as in training, if it is the same folder; --split all evaluates all its images)")
    if not model.is_classifier:
        return 0
    for sentence in findings(evaluation.metrics):
        out.say(sentence)
    print_metrics(evaluation.metrics, out)
    if diagnosis is not None:
        _say_diagnosis(diagnosis, out)
    return 0


def _check_comparison(args: Namespace, others: list[str], options: list[str]) -> None:
    plain = args.data is None and args.split in (None, "test") and args.crops == 1
    if len(others) > 1 or options or not plain or args.diagnostics:
        raise ConfigError(
            "run: expected one run, or two runs and no other argument (both are compared on their test images), got "
            f"{', '.join([args.run, *args.words])}"
        )


def _say_diagnosis(diagnosis: Snapshot, out: Output) -> None:
    if not diagnosis.layers:
        out.say("this model has no routing")
        return
    out.say(
        f"routing on {diagnosis.count} images; entropy 1: uniform coupling; changed: predictions that differ with it; "
        "coherence: mean cosine between the gradients of two batches"
    )
    rows = []
    for layer in diagnosis.layers:
        entropy, moved = (" ".join(f"{value:.3g}" for value in each) for each in (layer.entropy, layer.logit_change))
        changed = "" if layer.changed is None else f"{layer.changed:.1%}"
        gradient = f"{diagnosis.gradient_norms.get(layer.name, 0.0):.3g}"
        alike = diagnosis.gradient_coherence.get(layer.name)
        coherence = "" if alike is None else f"{alike:.2f}"
        unused = (f"{layer.dead:.0%}", f"{layer.starved:.0%}")
        rows.append((layer.name, layer.router, entropy, moved or "one pass", changed, *unused, gradient, coherence))
    columns = ("layer", "router", "entropy", "logits moved", "changed", "dead", "starved", "gradient", "coherence")
    out.table(columns, rows)


def _is_other_folder(data: str | None, options: list[str], run: Run) -> bool:
    """Whether a folder without splits is none that the run was trained on.

    If the folder of the training is gone, this may be the same one at another place.
    """
    tables = (run.recipe.data.options, read_options(options))
    own, path = (Path(str(table.get("path"))).expanduser() for table in tables)
    known = run.recipe.data.name != "folder" or (own.is_dir() and own.resolve() != path.resolve())
    return data == "folder" and known and not (path / "train").is_dir()


def _other_data(name: str, split: str, options: dict[str, Any], run: Run) -> ImageDataset:
    """Load a data set by name, with the image size, channels and classes of the run where it has these options."""
    from torchcaps.data import DATASETS, load_data

    channels, *sides = run.context.model.image_shape
    classes = run.record.get("class_names")
    for option, value in (("image_size", sides), ("channels", channels), ("classes", classes)):
        if option in DATASETS[name].options:
            options.setdefault(option, value)
    return load_data(name, split, **options)


def _check_classes(run: Run, data: ImageDataset) -> None:
    known = run.record.get("class_names", list(data.class_names))
    if known != list(data.class_names):
        raise ConfigError(
            f"data: expected the classes that the run was trained on ({', '.join(known)}), "
            f"got those of {data.name} ({', '.join(data.class_names)})"
        )


VERB = Verb(
    name="eval",
    summary="evaluate a trained network, or compare two",
    description="Evaluates the network of a run (of its newest checkpoint, if it is not finished), by default on the "
    "held-out test set (not used for model selection): accuracy, precision, recall, F1, ROC-AUC, calibration and more, "
    "each with a 95% interval, and every class. With a second run, both are compared on the same test images. --data "
    "evaluates on other images of the same classes, or of some of them, --protocol with one of the protocols of the "
    "papers.",
    examples=(
        ("torchcaps eval runs/A runs/B", "is B better than A, or is the difference chance?"),
        ("torchcaps eval runs/NAME --data folder path=my/test_images", "on other images"),
        ("torchcaps eval runs/NAME --diagnostics", "and measure the routing of each layer"),
        ("torchcaps eval runs/NAME --protocol corruptions", "noise, blur, occlusion and more, at five severities"),
        (
            "torchcaps eval runs/NAME --protocol adversarial attacks=reconstructive",
            "an attack that tries to stay undetected",
        ),
        ("torchcaps eval runs/CAPSULES runs/CNN --protocol pose", "is the viewpoint encoded in the poses?"),
    ),
    configure=_configure,
    run=_run,
)
