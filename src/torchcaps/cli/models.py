"""`torchcaps models`: list the networks, or describe one."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.models import ImageModel

WILD = "*?["
# Options whose meaning is the same in all networks, or that only a factory has.
COMMON = {
    "blocks": "Number of further residual blocks of 128 channels.",
    "caps": "Number of capsules below the classes.",
    "dim": "Pose size of the capsules below the classes.",
    "dropout": "Probability that a value before the last layer is dropped in training.",
    "pool": "attention: capsules are pooled over the positions; none: one of each kind at each position.",
    "routing": "Router; model.options.routing.iters=2 and others are its own options (`torchcaps routers NAME`).",
    "weights": "safetensors file with weights of the backbone to start from.",
}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default="*", metavar="NAME", help="name of a network, or a pattern such as 'capsnet*'"
    )


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.models import list_models

    if any(sign in args.name for sign in WILD):
        entries = [_summary(name) for name in list_models(args.name)]
        out.document(entries)
        out.table(("model", "parameters", "description"), [tuple(entry.values())[:3] for entry in entries])
        out.say(
            "parameters for images of 1x28x28 in ten classes, decoder included; `torchcaps models NAME` shows options"
        )
        _say_shipped(out, [card for entry in entries for card in entry["pretrained"].values()])
        return 0
    entry = _details(args.name)
    out.document(entry)
    out.say(f"{entry['name']}: {entry['description']}", style="bold")
    out.facts({"parameters": f"{entry['parameters']:,}", "loss": entry["loss"], "decoder": entry["decoder"] or "none"})
    out.table(("module", "parameters"), list(entry["parts"].items()))
    about = entry["about_options"]
    rows = [
        (f"model.options.{name}", value, about[name]["values"], about[name]["meaning"])
        for name, value in entry["options"].items()
    ]
    if rows:
        out.table(("option", "default", "values", "meaning"), rows)
    for name, card in entry["pretrained"].items():
        _say_card(out, name, card)
    return 0


def _say_shipped(out: Output, cards: list[dict[str, Any]]) -> None:
    if not cards:
        out.say("no bundled weights")
        return
    rows = [
        (card["name"], card["model"], card["data"]["name"], f"{card['test_accuracy']:.2%}", card["data_licence"])
        for card in sorted(cards, key=lambda card: card["name"])
    ]
    out.table(("weights", "model", "data", "test accuracy", "licence of the data"), rows)
    out.say("bundled weights: `torchcaps predict --pretrained WEIGHTS IMAGE`")


def _say_card(out: Output, name: str, card: dict[str, Any]) -> None:
    out.say(f"weights '{name}': {card['test_accuracy']:.2%} of {card['test_images']:,} test images", style="bold")
    out.facts(
        {
            "data": f"{card['data']['name']} ({card['data_licence']})",
            "use": "research only" if card["research_only"] else "as the licence of the data allows",
            "training": f"{card['epochs']} epochs in {card['seconds'] / 60:.1f} minutes, seed {card['seed']}",
            "recipe": card["recipe"]["name"],
            "commit": card["commit"] or "unknown",
            "limits": " ".join(card["limits"]),
        }
    )


def _make(name: str) -> ImageModel:
    """Create the network for ten classes on the meta device: only the shapes of its weights are needed."""
    import torch

    from torchcaps.models import create_model

    with torch.device("meta"):
        return create_model(name)


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _summary(name: str) -> dict[str, Any]:
    from torchcaps.models import MODELS, list_pretrained, pretrained_card

    description = (inspect.getdoc(MODELS[name]) or "").partition("\n")[0]
    cards = [pretrained_card(weights) for weights in list_pretrained()]
    return {
        "name": name,
        "parameters": _count(_make(name)),
        "description": description,
        "pretrained": {card.name: asdict(card) for card in cards if card.model == name},
    }


def _details(name: str) -> dict[str, Any]:
    from torchcaps.models import MODELS

    model = _make(name)
    parameters, hints = inspect.signature(MODELS[name]).parameters.values(), get_type_hints(MODELS[name])
    return {
        **_summary(name),
        "loss": model.default_loss,
        "decoder": None if model.decoder is None else type(model.decoder).__name__,
        "parts": {part: _count(child) for part, child in model.named_children()},
        "options": {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY},
        "about_options": {
            option.name: {
                "values": _values(option.name, hints.get(option.name)),
                "meaning": _meaning(option.name, MODELS[name], type(model)),
            }
            for option in parameters
            if option.kind is option.KEYWORD_ONLY
        },
    }


def _values(option: str, hint: Any) -> str:
    """Return the values that an option of a network takes."""
    from torchcaps.models import BACKBONES
    from torchcaps.nn import DECODERS, ROUTERS

    named = {
        "routing": ROUTERS,
        "class_routing": ROUTERS,
        "decoder": DECODERS,
        "backbone": [*BACKBONES, "timm:NAME"],
        "weights": ["a file"],
    }
    words = {int: "a whole number", float: "a number", bool: "true, false", str: "a string"}
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if option in named:
        return ", ".join([*named[option], *(["none"] if option == "decoder" else [])])
    found = [", ".join(get_args(kind)) if get_origin(kind) is Literal else words.get(kind, "") for kind in kinds]
    return ", ".join(filter(None, found)) or "a list"


def _meaning(option: str, *owners: Any) -> str:
    """Return the description of an option: by the factory of the network, its class, or for all networks."""
    from torchcaps.cli._docstrings import described_names

    for owner in owners:
        if option in (found := described_names(owner)):
            return found[option]
    return COMMON.get(option, "")


VERB = Verb(
    name="models",
    summary="list the networks, or describe one",
    description="Lists the networks that recipes and `torchcaps.create_model` know by name, with their number of "
    "parameters, and the bundled weights. With a name, shows the modules and options of the network, and the model "
    "cards of its weights: training data, accuracy and limitations.",
    examples=(
        ("torchcaps models", "all networks"),
        ("torchcaps models 'capsnet*'", "networks whose name matches a pattern"),
        ("torchcaps models capsnet_small", "modules and options of one network"),
    ),
    configure=_configure,
    run=_run,
)
