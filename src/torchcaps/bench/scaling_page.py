"""The page `docs/scaling.md`, from the result of `torchcaps bench scaling`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from torchcaps import viz
from torchcaps._files import write_figure, write_text
from torchcaps.bench.scaling import AXES, BACKBONE, CONV, DENSE, FAR, NAME
from torchcaps.bench.scaling_fit import Cost, backbone_seconds, class_layer, fit_costs, largest, term_sizes

Costs = dict[tuple[str, str], dict[str, Cost]]
# ImageNet: images of an epoch, epochs of a training, images of a step, side of an image, classes.
IMAGENET, EPOCHS, BATCH, SIDE, CLASSES = 1_281_167, 90, 32, 224, 1000
# Capsules at each position of the last feature map, which has 1/32 of the side of the image; or as many in all.
CAPS, SHRINK = 32, 32
DAY = 24 * 3600
KINDS = {
    "dense": "dense layer, one weight per child and parent",
    "shared": "dense layer, one weight per parent, shared by the children",
    "conv": "convolutional layer, 4x4 poses, 3x3, stride 2",
}
UNITS = {"votes": "vote product", "pose entries": "entry of a vote", "couplings": "coupling"}
UNITS |= {"weights": "weight", "inputs": "entry of a child"}


def render_scaling(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write `scaling.md` and `scaling.svg`.

    Args:
        result: Result of `run_scaling`.
        folder: The folder of the files.

    Returns:
        The written files.

    Example:
        >>> render_scaling(read_result(Path("benchmarks/results/scaling.json")), Path("docs"))  # doctest: +SKIP
    """
    folder.mkdir(parents=True, exist_ok=True)
    page, figure = folder / f"{NAME}.md", folder / f"{NAME}.svg"
    costs = fit_costs(result["rows"])
    # Without a date and with fixed identifiers, equal results give equal files.
    with matplotlib.rc_context({"svg.hashsalt": "torchcaps"}):
        write_figure(figure, _figure(result, costs), metadata={"Date": None})
    parts = [
        _head(result),
        _measured(result),
        _formulas(costs),
        _imagenet(result, costs, figure),
        _limits(result, costs),
    ]
    write_text(page, "\n".join([*parts, _processes(result)]))
    return [page, figure]


def scaling_summary(result: Mapping[str, Any]) -> list[list[str]]:
    """Return time and memory at the base point as lines of cells, the header first.

    Args:
        result: Result of `run_scaling`.

    Returns:
        Lines of cells.

    Example:
        >>> scaling_summary(run_scaling(quick=True))  # doctest: +SKIP
    """
    lines = [["router", *(f"{kind}, {unit}" for kind in AXES for unit in ("ms", "MB"))]]
    for router in _routers(result):
        cells = []
        for kind in AXES:
            row = _at(result, kind, router, CONV if kind == "conv" else DENSE)
            cells += [_ms(row), _mb(row)]
        lines.append([router, *cells])
    return lines


def _head(result: Mapping[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    return f"""# {result["title"]}

Time and memory of one layer, forward and backward, with every router, and what follows for large problems.
`torchcaps bench scaling` measures it in a few minutes on any machine; `torchcaps bench scaling --render docs`
writes this page. All numbers are from {machine["processor"]}, {machine["cores"]} cores, {machine["threads"]}
threads, {machine["available_mb"] / 1000:.1f} GB of free memory, torch {versions["torch"]}, torchcaps
{versions["torchcaps"]} (commit {(result["commit"] or "unknown")[:12]}), {result["date"][:10]}. Each pair of
router and layer has its own process. The time is the minimum of several calls, the memory is what the process
grows by in one call: gradients count, parameters and inputs do not.
"""


def _measured(result: Mapping[str, Any]) -> str:
    parts = ["## Measured\n"]
    for kind, axes in AXES.items():
        base = CONV if kind == "conv" else DENSE
        where = ", ".join(f"{axis} {value}" for axis, value in base.items())
        header = ["router", "base", *(f"{axis} {value}" for axis, values in axes.items() for value in values), "far"]
        points = [base, *({**base, axis: value} for axis, values in axes.items() for value in values), FAR[kind]]
        for title, cell in (("Milliseconds", _ms), ("Megabytes", _mb)):
            lines = [header]
            for router in _routers(result):
                lines.append([router, *(cell(_at(result, kind, router, point)) for point in points)])
            parts.append(
                f"{title} of a {KINDS[kind]}; base: {where}; one size differs in each column:\n\n{_table(lines)}"
            )
        far = ", ".join(f"{axis} {value}" for axis, value in FAR[kind].items())
        parts.append(f"The far point is {far}; no formula is fitted to it.\n")
        lines = [["router", *axes]]
        lines += [[router, *(_exponent(result, kind, router, axis) for axis in axes)] for router in _routers(result)]
        parts.append(
            f"Exponents of the time: it grows with size^exponent between the two sizes of an axis:\n\n{_table(lines)}"
        )
    return "\n".join(parts)


def _exponent(result: Mapping[str, Any], kind: str, router: str, axis: str) -> str:
    base, (low, high) = CONV if kind == "conv" else DENSE, AXES[kind][axis]
    ends = [_at(result, kind, router, {**base, axis: value}) for value in (low, high)]
    if any(end is None or "error" in end for end in ends):
        return ""
    first, second = (end["seconds"] for end in ends if end is not None)
    return f"{math.log(second / first) / math.log(high / low):.2f}"


def _formulas(costs: Costs) -> str:
    text = """## Cost formulas

Time and memory are sums of a constant and of terms that are proportional to the size of the layer: products of
the votes (B I J P D), entries of the votes (B I J D), couplings (B I J), weights (I J P D) and entries of the
children (B I P). In a convolutional layer I counts the children under a kernel and J the parents at all
positions. The factors are not negative and make the sum of squared relative errors least. `error` is the root
mean square of the relative errors at the fitted points, `worst` the largest. `far` is the predicted value over
the measured one at the far point.
"""
    parts = [text]
    for kind, title in KINDS.items():
        lines = [["router", "seconds", "error", "worst", "far", "bytes", "error", "worst", "far"]]
        for (of_kind, router), cost in costs.items():
            if of_kind == kind:
                cells = []
                for name, unit in (("seconds", 1e12), ("mb", 1e6)):
                    one = cost[name]
                    far = "" if one.far is None else f"{one.far:.2f}"
                    cells += [_formula(one, name, unit), f"{one.error:.0%}", f"{one.worst:.0%}", far]
                lines.append([router, *cells])
        parts.append(f"{title[0].upper()}{title[1:]} (picoseconds and bytes):\n\n{_table(lines)}")
    return "\n".join(parts)


def _formula(cost: Cost, name: str, unit: float) -> str:
    constant = f"{1e3 * cost.constant:.2g} ms" if name == "seconds" else f"{cost.constant:.2g} MB"
    terms = [f"{unit * factor:.3g} per {UNITS[term]}" for term, factor in cost.factors.items()]
    return " + ".join([*([constant] if cost.constant > 0 else []), *terms]) or "0"


def _figure(result: Mapping[str, Any], costs: Costs) -> Figure:
    classes = [10, 30, 100, 200, 400, 600, 800, 1000]
    panels: dict[str, dict[str, viz.Points]] = {}
    for kind in ("dense", "shared"):
        lines = {
            router: (classes, [1e3 * _per_image(cost, kind, _children(SIDE), count) for count in classes])
            for (of_kind, router), cost in costs.items()
            if of_kind == kind
        }
        backbone = 1e3 * backbone_seconds(result["backbone"], SIDE)
        title = "A weight per child and class" if kind == "dense" else "A weight per class"
        panels[title] = {**lines, f"{BACKBONE}": (classes, [backbone] * len(classes))}
    return viz.lines(panels, x="classes", y="ms per image, 1568 children", scale="log")


def _children(side: float) -> int:
    return round(CAPS * (side / SHRINK) ** 2)


def _per_image(cost: Mapping[str, Cost], kind: str, children: int, classes: int) -> float:
    return cost["seconds"](term_sizes(kind, class_layer(BATCH, children, classes))) / BATCH


def _megabytes(cost: Mapping[str, Cost], kind: str, children: int, classes: int) -> float:
    """Return the memory of a step: what it grows by, parameters, and the two moments of Adam."""
    sizes = term_sizes(kind, class_layer(BATCH, children, classes))
    return cost["mb"](sizes) + 3 * 4 * sizes["weights"] / 1e6


def _imagenet(result: Mapping[str, Any], costs: Costs, figure: Path) -> str:
    backbone = backbone_seconds(result["backbone"], SIDE)
    sides = "; ".join(
        f"{row['side']} px: {1e3 * row['seconds'] / row['images']:.0f} ms, {row['mb'] / row['images']:.0f} MB"
        for row in result["backbone"]
    )
    heads = {
        "pooled": ("dense", CAPS, f"{CAPS} pooled capsules"),
        "shared": ("shared", _children(SIDE), f"{_children(SIDE)} capsules, shared weights"),
        "dense": ("dense", _children(SIDE), f"{_children(SIDE)} capsules, own weights"),
    }
    lines = [["router", *(f"{title}: {unit}" for *_, title in heads.values() for unit in ("h per epoch", "GB"))]]
    for router in _routers(result):
        cells = []
        for kind, children, _ in heads.values():
            cost = costs.get((kind, router))
            hours = "" if cost is None else f"{_hours(_per_image(cost, kind, children, CLASSES)):,.1f}"
            memory = "" if cost is None else f"{_megabytes(cost, kind, children, CLASSES) / 1000:.2f}"
            cells += [hours, memory]
        lines.append([router, *cells])
    return f"""## ImageNet at 224 px with 1,000 classes

A class layer on `{BACKBONE}`, whose last feature map is 7x7, with {CAPS} capsules of 8 numbers at each position
({_children(SIDE)} children), or pooled over the positions ({CAPS} children), and class capsules of 16 numbers.
Forward and backward of the backbone with a linear head, measured for one image: {sides}. At 224 px an epoch of
{IMAGENET:,} images takes the backbone {_hours(backbone):.1f} hours on this machine, and a training of {EPOCHS}
epochs {_hours(backbone) * EPOCHS / 24:.0f} days. The formulas predict for the class layer alone, with {BATCH}
images a step; memory includes parameters and the state of Adam:

{_table(lines)}
![Predicted time of a class layer over the number of classes]({figure.name})
"""


def _hours(seconds_per_image: float) -> float:
    return seconds_per_image * IMAGENET / 3600


def _limits(result: Mapping[str, Any], costs: Costs) -> str:
    free, backbone = result["machine"]["available_mb"], backbone_seconds(result["backbone"], SIDE)
    children = _children(SIDE)
    lines = [
        ["router", "layer", "as fast as the backbone", "an epoch in a day", "memory", "largest image, 1,000 classes"]
    ]
    for router in _routers(result):
        for kind in ("shared", "dense"):
            cost = costs.get((kind, router))
            if cost is not None:
                lines.append([router, kind, *_limit_cells(cost, kind, children, backbone, free)])
    return f"""## Where it stops being affordable

Largest numbers of classes with {children} children: until the class layer takes as long as the backbone, until
an epoch of the class layer alone takes a day on this machine, and until a step of {BATCH} images needs more than the
{free / 1000:.1f} GB of free memory. The last column is the largest side of an image with 1,000 classes for
which the class layer takes a day per epoch at most and fits into memory.

{_table(lines)}
The predictions are extrapolations; the column `far` of the formulas shows how far they can be trusted at ten to
twenty times the size of the base point. Own weights limit the memory before the time: {children} children and
1,000 classes have {children * 1000 * 128 / 1e6:.0f} million weights. Pooling over positions or shared weights
remove that limit.
"""


def _limit_cells(cost: Mapping[str, Cost], kind: str, children: int, backbone: float, free: float) -> list[str]:
    by_time = largest(lambda count: _per_image(cost, kind, children, count) <= backbone)
    by_day = largest(lambda count: _per_image(cost, kind, children, count) * IMAGENET <= DAY)
    by_memory = largest(lambda count: _megabytes(cost, kind, children, count) <= free)

    def fits(cells: int) -> bool:
        many = CAPS * cells**2
        in_a_day = _per_image(cost, kind, many, CLASSES) * IMAGENET <= DAY
        return in_a_day and _megabytes(cost, kind, many, CLASSES) <= free

    side = largest(fits, 1000) * SHRINK
    return [*(f"{count:,}" for count in (by_time, by_day, by_memory)), f"{side} px" if side else "none"]


def _processes(result: Mapping[str, Any]) -> str:
    settings = ["1 process, 1 thread", "1 process, 2 threads", "2 processes, 1 thread each"]
    lines = [["network", "images per step", *settings, "efficiency"]]
    for name in dict.fromkeys(row["network"] for row in result["processes"]):
        rows = [row for row in result["processes"] if row["network"] == name]
        speeds = [row.get("images_per_second") for row in rows]
        cells = [
            row.get("error", "") if speed is None else f"{speed:,.0f}" for row, speed in zip(rows, speeds, strict=True)
        ]
        first, _, last = speeds
        efficiency = "" if first is None or last is None else f"{last / (2 * first):.0%}"
        lines.append([name, str(rows[0]["images"]), *cells, efficiency])
    return f"""## Two processes

Images per second of training steps with DistributedDataParallel and gloo: the same images a step in all columns. The
efficiency is the speed of two processes over twice that of one, each with one thread.

{_table(lines)}"""


def _routers(result: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["router"] for row in result["rows"]))


def _at(result: Mapping[str, Any], kind: str, router: str, point: Mapping[str, int]) -> Mapping[str, Any] | None:
    for row in result["rows"]:
        if (row["kind"], row["router"]) == (kind, router) and row["point"] == point:
            return row
    return None


def _ms(row: Mapping[str, Any] | None) -> str:
    if row is None or "error" in row:
        return "" if row is None else row["error"].partition(":")[0]
    return f"{1e3 * row['seconds']:.1f}"


def _mb(row: Mapping[str, Any] | None) -> str:
    return "" if row is None or "error" in row else f"{row['mb']:.1f}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    rule = f"|---|{'---:|' * (len(lines[0]) - 1)}"
    head, *rest = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([head, rule, *rest]) + "\n"
