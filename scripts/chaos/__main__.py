"""Break trainings in every way a machine can, and check that no data is lost: `make chaos`.

A short training is run once undisturbed. Then it is run again and again, each time with one fault injected at a random
moment, and resumed. Every trial must end with the weights and metrics of the undisturbed run, bit for bit, or in a
clear refusal where there is nothing to resume from. The table at the end counts both; anything else is a failure, whose
folder is kept, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from _faults import faults, worker
from _lab import BrokenError, Lab, MissedError

COLUMNS = ("injected", "equal", "refused", "failed")


@dataclass(frozen=True)
class Outcome:
    """One trial: the fault, its outcome, and for a failure the reason with the folder."""

    fault: str
    result: str
    reason: str = ""


def _trials(root: Path, seed: int, end: float, only_workers: bool, outcomes: Queue[Outcome | None]) -> None:
    """Inject faults in one process until the time is over."""
    lab = Lab(root, seed)
    lab.reference()
    menu = [(name, fault) for name, (fault, count) in faults().items() for _ in range(count)]
    if only_workers:
        # Two processes need ten seconds to start: beside the other faults they would come too rarely.
        menu = [("killed process of two", worker)]
    while time.monotonic() < end:
        lab.rng.shuffle(menu)
        for name, fault in menu:
            if time.monotonic() >= end:
                break
            before = set(root.glob("trial-*"))
            lab.strikes = 0
            try:
                result = fault(lab)
                for _ in range(1 + lab.strikes):
                    outcomes.put(Outcome(name, result))
            except MissedError:
                pass
            except Exception as error:
                reason = str(error) if isinstance(error, BrokenError) else f"{type(error).__name__}: {error}"
                kept = sorted(set(root.glob("trial-*")) - before)
                outcomes.put(Outcome(name, "failed", f"{reason} (kept: {', '.join(map(str, kept))})"))
                continue
            for trial in set(root.glob("trial-*")) - before:
                shutil.rmtree(trial, ignore_errors=True)
    outcomes.put(None)


def _counts(outcomes: list[Outcome]) -> dict[str, dict[str, int]]:
    """Count the results of each fault, and of all."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        for name in (outcome.fault, "all"):
            counts[name] += Counter({"injected": 1, outcome.result: 1})
    order = [*sorted(name for name in counts if name != "all"), "all"]
    return {name: {column: counts[name][column] for column in COLUMNS} for name in order}


def _sum(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Add the counts of an earlier run; machine and versions are those of this one."""
    names = [*sorted({*before["faults"], *now["faults"]} - {"all"}), "all"]
    none = dict.fromkeys(COLUMNS, 0)
    faults = {
        name: {column: sum(each["faults"].get(name, none)[column] for each in (before, now)) for column in COLUMNS}
        for name in names
    }
    return {
        **now,
        "seeds": [*before["seeds"], *now["seeds"]],
        "minutes": round(before["minutes"] + now["minutes"], 1),
        "faults": faults,
        "failures": [*before["failures"], *now["failures"]],
    }


def _table(counts: dict[str, dict[str, int]]) -> str:
    width = max(map(len, counts))
    rows = [f"{'fault':<{width}}  {'injected':>9}  {'bit-equal':>9}  {'refused':>9}  {'failed':>9}"]
    rows += [f"{name:<{width}}" + "".join(f"  {number:>9}" for number in row.values()) for name, row in counts.items()]
    return "\n".join(rows)


def main() -> int:
    """Run the trials and print the table."""
    parser = argparse.ArgumentParser(prog="make chaos", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to inject faults (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices (default: 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts and every failure to this file")
    parser.add_argument("--add", action="store_true", help="add to the counts that the file already has")
    parser.add_argument(
        "--lanes", type=int, default=4, help="trials at one time; every second kills workers (default: 4)"
    )
    args = parser.parse_args()
    # Forked processes inherit what is imported here, so that a training starts in milliseconds.
    import torch
    from PIL import Image

    import torchcaps.cli._main
    import torchcaps.train._runner  # noqa: F401
    from torchcaps.train.environment import provenance

    torch.set_num_threads(1)
    Image.init()
    # The sources are those of the start.
    origin = provenance()
    root = Path(tempfile.mkdtemp(prefix="torchcaps-chaos-"))
    started = time.monotonic()
    end = started + 60 * args.minutes
    fork = multiprocessing.get_context("fork")
    queue: Queue[Outcome | None] = fork.Queue()
    lanes = []
    for number in range(args.lanes):
        (root / str(number)).mkdir()
        options = (root / str(number), args.seed * 1000 + number, end, number % 2 == 0, queue)
        lanes.append(fork.Process(target=_trials, args=options))
        lanes[-1].start()
    outcomes: list[Outcome] = []
    running = len(lanes)
    while running:
        outcome = queue.get(timeout=900)
        if outcome is None:
            running -= 1
            continue
        outcomes.append(outcome)
        if outcome.result == "failed":
            print(f"\rFAILED {outcome.fault}: {outcome.reason}", file=sys.stderr)
        left = max(0, round(end - time.monotonic()))
        print(f"\r{len(outcomes)} faults injected, {left} s left ", end="", file=sys.stderr, flush=True)
    for lane in lanes:
        lane.join()
    failed = [outcome for outcome in outcomes if outcome.result == "failed"]
    counts = _counts(outcomes)
    print(f"\n{_table(counts)}")
    if args.json:
        from torchcaps._files import write_text

        options = {"seeds": [args.seed], "minutes": round((time.monotonic() - started) / 60, 1)}
        result = {**options, **origin, "faults": counts, "failures": [vars(outcome) for outcome in failed]}
        if args.add and args.json.exists():
            result = _sum(json.loads(args.json.read_text()), result)
        write_text(args.json, json.dumps(result, indent=1) + "\n")
    if failed:
        print(f"{len(failed)} trials failed; their folders are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
