"""`torchcaps claims`: claims about capsules, and what was measured."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of a claim; without it, all are listed")


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.experiments import LECTURE_CLAIMS, judge, judge_all

    if args.name is None:
        verdicts = judge_all()
        out.document([verdict.to_json() for verdict in verdicts])
        out.table(
            ("claim", "statement", "verdict"),
            [(each.claim.name, each.claim.statement, each.judgement) for each in verdicts],
        )
        out.say("verdicts are computed from recorded results; `torchcaps claims NAME` shows the numbers")
        return 0
    verdict = judge(LECTURE_CLAIMS[args.name])
    out.document(verdict.to_json())
    claim = verdict.claim
    out.say(f"{claim.statement} {verdict.judgement.capitalize()}.", style="bold")
    facts = {"protocol": claim.protocol, "recipe": claim.recipe, "control": claim.control, "caveat": claim.caveat}
    out.facts({name: value for name, value in facts.items() if value})
    rows = [
        (each.name, f"{each.first:.2f}", f"{each.second:.2f}", f"{each.gain:+.2f}", f"{each.margin:.2f}", each.runs)
        for each in verdict.numbers
    ]
    if rows:
        out.table(("comparison", "capsules", "control", "gain", "margin", "runs"), rows)
    for each in verdict.numbers:
        if each.outdated:
            out.say(f"measured with an earlier recipe: {each.name}")
    for name in verdict.pending:
        out.say(f"not run yet, or not in full: torchcaps reproduce {name}")
    return 0


VERB = Verb(
    name="claims",
    summary="list claims about capsules, and what was measured",
    description="Lists the claims of the lectures that the project started from, each with the verdict that follows "
    "from recorded results: it holds if capsules are better than their control in every comparison, by more than the "
    "uncertainty from test images and seeds. With a name, shows protocol, recipe, control and numbers.",
    examples=(
        ("torchcaps claims", "all claims with their verdicts"),
        ("torchcaps claims affine", "the numbers behind one of them"),
        ("torchcaps claims --json", "for a script"),
    ),
    configure=_configure,
    run=_run,
)
