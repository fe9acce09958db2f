"""`torchcaps routers`: list the routers, or describe one."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from torchcaps.cli._verb import Verb
from torchcaps.cli.models import WILD

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default="*", metavar="NAME", help="name of a router, or a pattern such as '*routing'"
    )


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.nn import list_routers

    if any(sign in args.name for sign in WILD):
        entries = [_describe(name) for name in list_routers(args.name)]
        out.document(entries)
        rows = [
            (entry["name"], entry["description"], ", ".join(entry["options"]), ", ".join(entry["backends"]))
            for entry in entries
        ]
        out.table(("router", "description", "options", "backends"), rows)
        out.say(
            "`torchcaps routers NAME` shows options; `torchcaps train model.options.routing.name=NAME` trains with it"
        )
        return 0
    entry = _describe(args.name)
    out.document(entry)
    out.say(f"{entry['name']}: {entry['description']}", style="bold")
    out.facts({"class": f"torchcaps.nn.{entry['class']}", "backends": ", ".join(entry["backends"])})
    if entry["options"]:
        rows = [(f"model.options.routing.{name}", value) for name, value in entry["options"].items()]
        out.table(("option", "default"), rows)
    out.say(f"satisfies {len(entry['laws'])} of {len(entry['laws']) + len(entry['breaks'])} laws of routing; not:")
    out.say("\n".join(f"  {law.replace('_', ' ')}" for law in entry["breaks"]) or "  none")
    return 0


def _describe(name: str) -> dict[str, Any]:
    from torchcaps.nn import ROUTERS
    from torchcaps.nn.routers import LAWS

    router = ROUTERS[name]
    laws = router().laws
    summary = (inspect.getdoc(router) or "").partition("\n")[0]
    return {
        "name": name,
        # References to other parts of the code do not help on the command line.
        "description": summary.partition("; see ")[0].rstrip("."),
        "options": {option.name: option.default for option in inspect.signature(router).parameters.values()},
        "backends": list(router().contract.backends),
        "class": router.__name__,
        "laws": sorted(laws),
        "breaks": sorted(LAWS - laws),
    }


VERB = Verb(
    name="routers",
    summary="list the routers, or describe one",
    description="Lists the routers that recipes and `torchcaps.nn.make_router` know by name, with their options and "
    "backends. With a name, shows the defaults of its options and the laws of routing that it satisfies.",
    examples=(
        ("torchcaps routers", "all routers"),
        ("torchcaps routers kuramoto", "its options and laws"),
        ("torchcaps routers --json", "for a script that compares them"),
    ),
    configure=_configure,
    run=_run,
)
