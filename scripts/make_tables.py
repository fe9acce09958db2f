"""Generate tables and comparison figures of README and docs from the recorded results: `python scripts/make_tables.py`.

Arguments are folders of comparisons (`torchcaps compare`) and reproductions (`torchcaps reproduce`), whose results are
copied to results/ first.
"""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import torch

from torchcaps import viz
from torchcaps.bench import gpu, read_result, summary
from torchcaps.bench.overview import router_cases, router_lines
from torchcaps.experiments import (
    Comparison,
    NetworkRow,
    ReproductionResult,
    RouterMetrics,
    compare_markdown,
    format_machine,
    format_statistic,
    judge_all,
    list_reproductions,
    load_reproduction,
    read_json,
    reproduction_markdown,
    summarize,
    with_direction,
    write_json,
)
from torchcaps.experiments.reproduction_table import current_rows
from torchcaps.models import MODELS, create_model, list_models, list_pretrained, pretrained_card
from torchcaps.ops import support_table

ROOT = Path(__file__).resolve().parent.parent
# Prefixes of files in results/ that are not runs of a recipe.
OTHERS = (
    "compare-",
    "images-",
    "signals-",
    "tokens-",
    "reproduce-",
    "chaos",
    "security",
    "serving",
    "faithfulness",
    "export",
    "precision",
    "protocol-",
    "install",
)
# Table of the docs that a comparison on a data set belongs to; others have a section and a figure.
KINDS = {"folder": "images", "arrays": "signals", "trec": "tokens", "sst2": "tokens"}
HEAD = (
    "| recipe | model | parameters | epochs | test accuracy | runs | minutes | machine |",
    "|---|---|---|---|---|---|---|---|",
)
TRITON = ROOT / "benchmarks" / "results" / "triton.json"
BENCHMARK = ROOT / "benchmarks" / "results" / "dynamic.json"
DIGIT_CAPS = {"batch": 128, "children": 1152, "parents": 10, "iters": 3}
# Rows of the reproductions on the page of results: reproduction, network, column.
HEADLINES = (
    ("mnist_efficient", "Efficient-CapsNet", "error"),
    ("mnist_efficient", "Branched CapsNet", "error"),
    ("mnist_efficient", "Residual CapsNet", "error"),
    ("mnist_efficient", "Residual CapsNet, all 60,000 images", "error"),
    ("mnist_capsnet", "CapsNet, 3 iterations, reconstruction", "error"),
    ("multimnist", "Residual CapsNet, self-attention, reconstruction", "both correct"),
    ("multimnist", "CNN", "both correct"),
    ("smallnorb", "Matrix capsules, 68 K parameters", "error"),
    ("affine", "Matrix capsules, EM routing", "accuracy on affine_mnist"),
    ("affine", "CNN with global average pooling", "accuracy on affine_mnist"),
    ("affine", "CNN", "accuracy on affine_mnist"),
    ("viewpoints", "Matrix capsules, elevation", "novel error"),
    ("viewpoints", "CNN, elevation", "novel error"),
    ("digit_pairs", "Capsules, k-means routing", "both correct"),
    ("digit_pairs", "CNN with global average pooling", "both correct"),
)


def row(table: dict[str, Any]) -> str:
    """Return the line of one recipe: mean and standard deviation over its runs."""
    runs = table["runs"]
    machine = runs[0]["machine"]
    accuracy = format_statistic(summarize(run["results"]["test_accuracy"] for run in runs), 2, 100)
    cells = (
        f"`{table['recipe']}`",
        f"`{table['model']}`",
        f"{runs[0]['parameters']:,}",
        str(runs[0]["epochs"]),
        f"{accuracy} %",
        str(len(runs)),
        f"{sum(run['seconds'] for run in runs) / len(runs) / 60:.1f}",
        f"{machine['cores']} core{'s' * (machine['cores'] != 1)}, {machine['processor']}",
    )
    return f"| {' | '.join(cells)} |"


def results(folder: Path = ROOT / "results") -> str:
    """Return the results of the recipes in Markdown, ordered by recipe."""
    files = [file for file in sorted(folder.glob("*.json")) if not file.name.startswith(OTHERS)]
    return "\n".join([*HEAD, *(row(json.loads(file.read_text())) for file in files)])


def headlines(folder: Path = ROOT / "results") -> str:
    """Return selected numbers of the reproductions beside the papers' in Markdown, as far as they are measured.

    A row has the paper's number only if its network and its protocol are those of the paper.
    """
    table = [
        "| experiment | network | per cent | paper | ours | parameters | minutes |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for name, label, column in HEADLINES:
        file, entry = folder / f"reproduce-{name}.json", load_reproduction(name)
        paper = {network.label: network.paper.get(column) for network in entry.networks}[label]
        paper = paper if entry.same_experiment else None
        rows = read_json(ReproductionResult, file).rows if file.exists() else []
        for network in rows:
            if network.label == label and network.columns.get(column) is not None:
                cells = (
                    entry.title,
                    label,
                    with_direction(column),
                    "" if paper is None else f"{paper:g}",
                    format_statistic(network.columns[column], 2),
                    f"{network.parameters:,}",
                    format_statistic(network.seconds, 0, 1 / 60),
                )
                table.append(f"| {' | '.join(cells)} |")
    done = finished(folder)
    seeds = max((len(row.finished) for rows in done.values() for row in rows), default=0)
    about = f"↓ lower is better, ↑ higher is better. {len(done)} of {len(list_reproductions())} reproductions have "
    about += f"results, none of them from a GPU, with {'one seed each' if seeds == 1 else f'up to {seeds} seeds'}."
    return "\n".join([*table, "", about])


def recorded(folder: Path = ROOT / "results") -> dict[str, Any]:
    """Return the recorded results of all reproductions in the compact form that the package contains."""
    return {name: {row.label: recorded_network(row) for row in rows} for name, rows in finished(folder).items()}


def finished(folder: Path) -> dict[str, list[NetworkRow]]:
    """Return the finished networks of each reproduction that has any."""
    files = {name: folder / f"reproduce-{name}.json" for name in list_reproductions()}
    results = {name: read_json(ReproductionResult, file) for name, file in files.items() if file.exists()}
    current = {name: current_rows(load_reproduction(name), result) for name, result in results.items()}
    rows = {name: [row for row in each if row.finished] for name, each in current.items()}
    return {name: each for name, each in rows.items() if each}


def recorded_network(network: NetworkRow) -> dict[str, Any]:
    """Return the compact form of one network."""
    columns = {name: asdict(value) for name, value in network.columns.items() if value is not None}
    for value in columns.values():
        value.update({key: value[key] and round(value[key], 4) for key in ("mean", "std")})
    return {
        "columns": columns,
        "minutes": round(network.seconds.mean / 60, 1) if network.seconds else 0.0,
        "runs": len(network.finished),
        "parameters": network.parameters,
        "machine": format_machine(network.finished[0]),
        **({"outdated": True} if network.outdated else {}),
    }


def write_recorded(file: Path = ROOT / "src" / "torchcaps" / "reproductions" / "recorded.json") -> None:
    """Write the recorded results into the package."""
    file.write_text(json.dumps(recorded(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_recorded_protocols(
    folder: Path = ROOT / "results",
    file: Path = ROOT / "src" / "torchcaps" / "reproductions" / "recorded_protocols.json",
) -> None:
    """Write the recorded results of protocols into the package, by protocol, network, row and column."""
    table: dict[str, Any] = {}
    for source in sorted(folder.glob("protocol-*.json")):
        networks = table.setdefault(source.stem.removeprefix("protocol-"), {})
        for label, result in sorted(json.loads(source.read_text()).items()):
            networks[label] = {row["name"]: protocol_cells(row) for row in result["rows"]}
    file.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def protocol_cells(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return value and interval of each column of a recorded row, to five decimals."""
    cells = {}
    for column, value in row["accuracies"].items():
        low, high = row.get("intervals", {}).get(column, (value, value))
        cells[column] = {"value": round(value, 5), "low": round(low, 5), "high": round(high, 5)}
    return cells


def claims() -> str:
    """Return the claims with their verdicts in Markdown."""
    lines = [
        "| claim | verdict | capsules against control (gain ± margin) | control | command |",
        "|---|---|---|---|---|",
    ]
    for verdict in judge_all():
        claim = verdict.claim
        numbers = verdict.summary.replace("; ", "<br>") or ""
        lines.append(
            f"| {claim.statement} | **{verdict.judgement}** | {numbers} | {claim.control} | `{claim.recipe}` |"
        )
    left = [f"`torchcaps reproduce {name}`" for verdict in judge_all() for name in verdict.pending]
    if left:
        lines += ["", f"Not run yet, or not in full, and not part of a verdict: {', '.join(dict.fromkeys(left))}."]
    for claim in (verdict.claim for verdict in judge_all() if verdict.numbers):
        lines += ["", f"**{claim.statement}**", "", f"![Gains over the control](images/claims-{claim.name}.svg)"]
        lines += ["", f"![{claim.statement}](images/{claim.figure})"] if claim.figure else []
    return "\n".join(lines)


def draw_claims(figures: Path = ROOT / "docs" / "images") -> list[Path]:
    """Draw the gains of each claim that was measured over its controls, and return the paths."""
    files = []
    for verdict in judge_all():
        if verdict.numbers:
            files.append(figures / f"claims-{verdict.claim.name}.svg")
            save_svg(viz.gains(verdict.to_json()["numbers"]), files[-1])
    return files


def measured(protocol: str) -> str:
    """Return the recorded results of a protocol in Markdown, one table for each set of columns."""
    found = json.loads((ROOT / "results" / f"protocol-{protocol}.json").read_text())
    tables: dict[tuple[str, ...], list[str]] = {}
    for label, result in sorted(found.items()):
        columns = tuple(result["columns"])
        head = [
            f"| network, accuracy | row | images | {' | '.join(columns)} |",
            "|---|---|---:|" + "---:|" * len(columns),
        ]
        lines = tables.setdefault(columns, head)
        for row in result["rows"]:
            shown = [_number(row, column, result["is_share"]) for column in columns]
            accuracy = result.get("test_accuracy")
            name = f"`{label}`" if accuracy is None else f"`{label}`, {accuracy:.1%}"
            lines.append(f"| {name} | {row['name']} | {row['count']:,} | {' | '.join(shown)} |")
    return "\n\n".join("\n".join(lines) for lines in tables.values())


def equivariance() -> str:
    """Return the recorded curves of poses in Markdown: one table for each transformation."""
    tables: dict[str, list[str]] = {}
    for label, result in sorted(json.loads((ROOT / "results" / "protocol-pose.json").read_text()).items()):
        for curve in result["curves"]:
            title = f"{curve['name']}, {curve['axis']}"
            head = [
                f"| {title} | | {' | '.join(f'{at:g}' for at in curve['at'])} |",
                "|---|---|" + "---:|" * len(curve["at"]),
            ]
            lines = tables.setdefault(title, head)
            for name, line in curve["lines"].items():
                lines.append(f"| `{label}` | {name} | {' | '.join(f'{value:.2f}' for value in line)} |")
    return "\n\n".join("\n".join(lines) for lines in tables.values())


def _number(row: dict[str, Any], column: str, is_share: bool) -> str:
    value = row["accuracies"].get(column)
    if value is None:
        return ""
    if is_share:
        return f"{value:.2%}"
    low, high = row["intervals"][column]
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def comparison(folder: Path = ROOT / "results") -> str:
    """Return the comparisons of routers in Markdown, each with its figure."""
    parts = []
    for file in sorted(folder.glob("compare-*.json")):
        result = read_json(Comparison, file)
        figure = f"![Accuracy, cost and routing statistics of each router](images/{file.stem}.svg)"
        parts.append(f"## {result.name}\n\n{compare_markdown(result)}\n\n{figure}\n")
    return "\n".join(parts) or "No comparison is recorded yet."


def image_sets(folder: Path = ROOT / "results") -> str:
    """Return the folders of real images in Markdown: each head with accuracy and F1."""
    return controlled("images", {"backbone_linear": "linear"}, folder) or "No folder of images is recorded yet."


def signal_sets(folder: Path = ROOT / "results") -> str:
    """Return the files of real signals in Markdown: capsules and control with accuracy and F1."""
    return controlled("signals", {"cnn_1d": "`cnn_1d`"}, folder) or "No file of signals is recorded yet."


def token_sets(folder: Path = ROOT / "results") -> str:
    """Return the sets of sentences in Markdown: capsules and pooled tokens with accuracy and F1."""
    controls = {"token_mean": "mean", "token_attention": "attention"}
    return controlled("tokens", controls, folder) or "No set of sentences is recorded yet."


def controlled(kind: str, controls: Mapping[str, str], folder: Path) -> str:
    """Return comparisons with controls, by model, in Markdown; empty if none is recorded."""
    lines = [
        f"| {kind} | head | parameters | accuracy % | F1 (macro) % | F1 of each run, 95 % interval |",
        "|---|---|---:|---:|---:|---|",
    ]
    for file in sorted(folder.glob(f"{kind}-*.json")):
        result = read_json(Comparison, file)
        for row in result.rows:
            head = controls.get(row.router, f"capsules, `{row.router}`")
            cells = [
                result.name,
                head,
                f"{row.parameters:,}" if row.parameters else "",
                format_statistic(row.test_accuracy, 1, 100),
                format_statistic(row.f1_macro, 1, 100),
                "; ".join(interval(run.metrics) for run in row.runs if run.metrics is not None),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def interval(metrics: RouterMetrics) -> str:
    """Return the F1 of a run with its interval, in %."""
    if metrics.f1_macro is None or metrics.f1_interval is None:
        return ""
    low, high = metrics.f1_interval
    return f"{100 * metrics.f1_macro:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def reproductions(folder: Path = ROOT / "results") -> str:
    """Return all reproductions in Markdown, also those without results."""
    parts = []
    for name in list_reproductions():
        file = folder / f"reproduce-{name}.json"
        result = read_json(ReproductionResult, file) if file.exists() else None
        parts.append(reproduction_markdown(load_reproduction(name), result))
    return "\n".join(parts)


def record(source: Path, folder: Path = ROOT / "results", figures: Path = ROOT / "docs" / "images") -> list[Path]:
    """Copy the results in a folder to results/, and the figures to the docs; return the written results."""
    files = [record_reproduction(file, folder, figures) for file in sorted(source.glob("reproduction-*.json"))]
    if (source / "compare.json").exists():
        files.append(record_comparison(source / "compare.json", folder, figures))
    if not files:
        raise ValueError(f"source: expected a folder with compare.json or reproduction-NAME.json, got '{source}'")
    return files


def record_comparison(source: Path, folder: Path, figures: Path) -> Path:
    """Record a finished comparison and draw its figure."""
    result = read_json(Comparison, source)
    if result.status != "finished":
        raise ValueError(f"{source}: expected a finished comparison, got status '{result.status}'")
    data = result.recipe["data"]
    if data["name"] in KINDS:
        if "path" in data["options"]:
            # The folder lies somewhere on the machine that trained.
            options = {**data["options"], "path": Path(data["options"]["path"]).name}
            result = replace(result, recipe={**result.recipe, "data": {**data, "options": options}})
        file = folder / f"{KINDS[data['name']]}-{result.name}.json"
        write_json(file, result)
        return file
    file = folder / f"compare-{result.name}.json"
    write_json(file, result)
    draw_comparison(file, figures)
    return file


def draw_comparison(file: Path, figures: Path = ROOT / "docs" / "images") -> Path:
    """Draw the figure of a recorded comparison and return its path."""
    figure = figures / f"{file.stem}.svg"
    save_svg(viz.comparison(asdict(read_json(Comparison, file))["rows"]), figure)
    return figure


def save_svg(figure: viz.Figure, file: Path) -> None:
    """Save a figure; without a date and with fixed identifiers, equal results give equal files."""
    with matplotlib.rc_context({"svg.hashsalt": "torchcaps"}):
        figure.savefig(file, metadata={"Date": None})


def record_reproduction(source: Path, folder: Path, figures: Path) -> Path:
    """Record a reproduction, merged with the recorded one, and copy its figures."""
    new = read_json(ReproductionResult, source)
    if new.changes:
        raise ValueError(f"{source}: expected unchanged recipes, got changes ({', '.join(new.changes)})")
    file = folder / f"reproduce-{new.name}.json"
    result = merge(read_json(ReproductionResult, file), new) if file.exists() else new
    # A figure without a network of the table does not replace one with it.
    incomplete = result.rows != new.rows
    for name, figure in new.figures.items():
        target = figures / f"{file.stem}-{name}.png"
        if not (incomplete and target.exists()):
            shutil.copyfile(source.parent / figure.file, target)
    write_json(file, result)
    return file


def merge(old: ReproductionResult, new: ReproductionResult) -> ReproductionResult:
    """Return the new result, with the rows and figures that only the old one has.

    Networks may have been trained on several machines.
    """
    recorded = {network.label: network for network in old.rows}
    rows = [network if network.finished else recorded.get(network.label, network) for network in new.rows]
    status = "finished" if all(network.finished for network in rows) else new.status
    return replace(new, rows=rows, status=status, figures={**old.figures, **new.figures})


def speed(file: Path = BENCHMARK) -> str:
    """Return the benchmark of the DigitCaps layer in Markdown."""
    head, *lines = summary(read_result(file))
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def routers(folder: Path = ROOT / "benchmarks" / "results" / "first") -> str:
    """Return time and memory of every router, dense and convolutional, by backend in Markdown."""
    files = {name: folder / f"{name}.json" for name in router_cases().values()}
    found = {name: read_result(file) for name, file in files.items() if file.exists()}
    header, *lines = router_lines(found)
    rule = ["---", "---", *("---:" for _ in header[2:])]
    table = [f"| {' | '.join(cells)} |" for cells in (header, rule, *lines)]
    if found:
        machines = sorted({result["machine"]["processor"] for result in found.values()})
        loads = sorted(load for result in found.values() for load in result["load"] if load is not None)
        load = f"; its load was {loads[0]:g} to {loads[-1]:g} meanwhile" if loads else ""
        table += ["", f"{', '.join(machines)}{load}."]
    return "\n".join(table)


def models() -> str:
    """Return all models with their sizes in Markdown."""
    lines = ["| name | parameters | description |", "|---|---:|---|"]
    for name in list_models():
        with torch.device("meta"):
            model = create_model(name)
        count = sum(parameter.numel() for parameter in model.parameters())
        summary = (inspect.getdoc(MODELS[name]) or "").partition("\n")[0]
        lines.append(f"| `{name}` | {count:,} | {summary} |")
    return "\n".join(lines)


def roofline() -> str:
    """Return operations, bytes and bounds of the Triton kernels, and what was measured, in Markdown."""
    header, *lines = gpu.table(read_result(TRITON))
    rows = [header, ["---"] * len(header), *([f"`{routing}`", *rest] for routing, *rest in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def compiled() -> str:
    """Return what the compiled Triton kernels take: the most of any kernel of a training step, in Markdown."""
    lines = ["| routing | layer | target | kernels | registers | spilled bytes | shared memory |", "|" + "---|" * 7]
    for row in read_result(TRITON)["rows"]:
        for capability in gpu.CAPABILITIES:
            found = [usage for usage in row.get("compiled", []) if usage["capability"] == capability]
            if found:
                most = {key: max(usage[key] for usage in found) for key in ("registers", "spilled", "shared")}
                cells = (f"`{row['routing']}`", row["title"].partition(",")[0], f"sm_{capability}", len(found))
                lines.append(f"| {' | '.join(map(str, (*cells, *most.values())))} |")
    return "\n".join(lines)


def support() -> str:
    """Return the table of `torchcaps info` in Markdown: which backend serves each routing, layer, type and device."""
    header, *lines = support_table(here=False)
    rows = [header, ("---",) * len(header), *((f"`{name}`", *rest) for name, *rest in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def shipped() -> str:
    """Return the pretrained weights in Markdown: a table, then the limits of each."""
    cards = [pretrained_card(name) for name in list_pretrained()]
    if not cards:
        return "None yet."
    lines = [
        "| weights | network | parameters | MB | data | licence of the data | test accuracy | trained |",
        "|---|---|---:|---:|---|---|---:|---|",
    ]
    for card in cards:
        cells = (
            f"`{card.name}`",
            f"`{card.model}`",
            f"{card.parameters:,}",
            f"{card.weights.stat().st_size / 1e6:.2f}",
            f"`{card.data['name']}`",
            card.data_licence,
            f"{card.test_accuracy:.2%} of {card.test_images:,}",
            f"recipe `{card.recipe['name']}`, {card.epochs} epochs, {card.seconds / 60:.1f} minutes",
        )
        lines.append(f"| {' | '.join(cells)} |")
    for card in cards:
        only = " For research only." if card.research_only else ""
        commit = f"Commit {card.commit}" if card.commit else "Commit unknown"
        provenance = f"{commit}, seed {card.seed}, torch {card.versions['torch']}, {card.machine['processor']}."
        lines += ["", f"- `{card.name}`: {' '.join(card.limits)}{only} {provenance}"]
    return "\n".join(lines)


def faults(folder: Path = ROOT / "results") -> str:
    """Return what `make chaos` injected, and the outcomes, in Markdown."""
    result = json.loads((folder / "chaos.json").read_text())
    machine, versions = result["machine"], result["versions"]
    lines = ["| fault | injected | bit-equal | refused | failed |", "|---|---:|---:|---:|---:|"]
    for name, row in result["faults"].items():
        cells = (name, *(str(row[column]) for column in ("injected", "equal", "refused", "failed")))
        lines.append(f"| {' | '.join(cells)} |")
    seeds = f"Seed{'s' * (len(result['seeds']) > 1)} {' and '.join(map(str, result['seeds']))}"
    about = f"{seeds}, {result['minutes']:g} minutes, {machine['processor']}, torch {versions['torch']}."
    return "\n".join([*lines, "", about])


def fuzzing(file: Path = ROOT / "results" / "security.json") -> str:
    """Return the number of damaged inputs of each reader in Markdown, and what they found."""
    done = json.loads(file.read_text())["fuzzing"]
    lines = ["| reader | damaged inputs |", "|---|---:|"]
    lines += [f"| `{name}` | {count:,} |" for name, count in done["per_reader"].items()]
    found = f"Findings: {'; '.join(done['findings']) or 'none'}."
    return "\n".join([*lines, f"| all | {done['inputs']:,} |", "", found])


def attacked(file: Path = ROOT / "results" / "security.json") -> str:
    """Return the requests during an attack and their outcomes in Markdown."""
    table = json.loads(file.read_text())
    done, machine = table["attack"], table["machine"]
    counts = {
        "ordinary requests": done["requests"],
        **{f"of these {name}": count for name, count in done["outcomes"].items()},
        **{f"connections of the attackers: {name}": count for name, count in done["connections_of_attackers"].items()},
        **{f"requests in flight at SIGTERM, {name}": count for name, count in done["at_sigterm"].items()},
        "bytes in the log": done["log_bytes"],
    }
    lines = ["| what | count |", "|---|---:|", *(f"| {name} | {count:,} |" for name, count in counts.items())]
    memory = " and ".join(f"{value} MB" for value in done["memory_mb"])
    provenance = f"{machine['cores']} cores, {machine['processor']}, {table['date']}."
    provenance = f"Memory of the server before and after: {memory}. {provenance}"
    return "\n".join(
        [
            *lines,
            "",
            provenance,
        ]
    )


def bombs(file: Path = ROOT / "results" / "security.json") -> str:
    """Return the peak memory for folders of image bombs in Markdown."""
    lines = [
        "| format | pixels of each image | bytes of each file | files | peak memory |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in json.loads(file.read_text())["bombs"]:
        pixels = f"{row['side'] ** 2:,}"
        lines.append(f"| {row['format']} | {pixels} | {row['bytes_each']:,} | {row['files']} | {row['peak_mb']} MB |")
    return "\n".join(lines)


def serving(file: Path = ROOT / "results" / "serving.json") -> str:
    """Return the load tests of the prediction server in Markdown."""
    table = json.loads(file.read_text())
    compared = table.get("compare", {})
    found = {
        "five minutes": table.get("soak"),
        "stopped and started again under load": table.get("restart"),
        "batches": compared.get("batched"),
        "`--max-batch 1`": compared.get("unbatched"),
    }
    rows = {name: row for name, row in found.items() if row is not None}
    lines = [
        "| load | network | clients | seconds | answered | lost | wrong | per second | median ms | p95 ms |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        arguments = row["arguments"]
        network = arguments[1] if arguments[0] == "--pretrained" else Path(arguments[0]).stem
        counts = [f"{row[column]:,}" for column in ("answered", "lost", "wrong")]
        latency = [f"{row['latency_ms'][share]:g}" for share in ("p50", "p95")]
        cells = (name, f"`{network}`", row["clients"], f"{row['seconds']:.0f}", *counts, row["per_second"], *latency)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    soak, memory = table["soak"], table["soak"]["memory_mb"]
    notes = [
        f"During the five minutes a batch had {soak['mean_batch']:.1f} images on average, and the memory of the server "
        f"was {memory[0]:.0f} MB after 30 seconds and {memory[-1]:.0f} MB at the end.",
        f"{soak['machine']['cores']} cores, shared by server, clients and other work, {soak['machine']['processor']}, "
        f"torch {soak['versions']['torch']}, {soak['date']}.",
    ]
    if compared:
        notes.insert(0, f"Batches give {compared['speedup']:.1f} times the throughput.")
    return "\n".join([*lines, "", *notes])


def exported_speed(file: Path = ROOT / "results" / "export.json") -> str:
    """Return the times of all models and of their ONNX files in Markdown."""
    rows = dict(sorted(json.loads(file.read_text())["speed"].items()))
    lines = [
        "| model | batch 1: torchcaps | ONNX Runtime | ratio | batch 64: torchcaps | ONNX Runtime | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    above: list[str] = []
    for name, row in rows.items():
        cells = [f"`{name}`" + "*" * ("clock" not in row)]
        for batch in ("1", "64"):
            ours, theirs = row[batch]["ours_ms"], row[batch]["onnx_ms"]
            cells += [f"{ours:.2f} ms", f"{theirs:.2f} ms", f"{theirs / ours:.2f}"]
            above += [name] if theirs > 3 * ours and name not in above else []
        lines.append(f"| {' | '.join(cells)} |")
    newest = list(json.loads(file.read_text())["speed"].values())[-1]
    about = (
        f"One thread each, {newest['machine']['processor']}, torch {newest['versions']['torch']}. Shortest processor "
        "time of several calls in turns; with a star, shortest time by the clock, one after the other."
    )
    missed = f"Above three times our own time: {', '.join(f'`{name}`' for name in above) or 'none'}."
    return "\n".join([*lines, "", missed, about])


def exported_int8(file: Path = ROOT / "results" / "export.json") -> str:
    """Return size and accuracy of the bundled networks as float32 and as 8-bit integers in Markdown."""
    lines = [
        "| weights | network | test images | float32 | int8 | float32 | int8 |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in sorted(json.loads(file.read_text())["int8"].items()):
        kinds = [row[kind] for kind in ("float32", "int8")]
        shares = [f"{kind['accuracy']:.2%}" for kind in kinds]
        sizes = [f"{kind['bytes'] / 1e6:.2f} MB" for kind in kinds]
        cells = [f"`{name}`", f"`{row['model']}`", f"{row['images']:,}", *shares, *sizes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def highlights(folder: Path = ROOT / "results") -> str:
    """Return three measured sentences for the README."""
    layer = {row["candidate"]: row for row in json.loads(BENCHMARK.read_text())["rows"] if row["point"] == DIGIT_CAPS}
    times = [1000 * layer[name]["times"]["forward+backward"]["min"] for name in ("fused", "reference")]
    memory = [layer[name]["memory"]["forward+backward"] for name in ("fused", "reference")]
    pairs = {
        row.label: row.columns for row in read_json(ReproductionResult, folder / "reproduce-digit_pairs.json").rows
    }
    capsules, control = (
        format_statistic(pairs[label]["both correct"], 1)
        for label in ("Capsules, k-means routing", "CNN with global average pooling")
    )
    digits = json.loads((folder / "digits.json").read_text())["runs"]
    accuracy = format_statistic(summarize(run["results"]["test_accuracy"] for run in digits), 2, 100)
    minutes = sum(run["seconds"] for run in digits) / len(digits) / 60
    return "\n".join(
        (
            f"- **Speed.** The class layer of the paper, forward and backward at batch 128: {times[0]:.0f} ms and "
            f"{memory[0]:.0f} MB fused, {times[1]:.0f} ms and {memory[1]:.0f} MB in PyTorch "
            "([benchmarks](docs/benchmarks.md)).",
            f"- **Two digits side by side, after training on single ones.** Both correct: {capsules} % with capsules, "
            f"{control} % with a CNN ([reproductions](docs/reproductions.md)).",
            f"- **`torchcaps train`.** {accuracy} % on the test set of the bundled digits, {len(digits)} seeds, "
            f"{minutes:.1f} minutes each on two cores ([results](docs/results.md)).",
        )
    )


def choice(folder: Path = ROOT / "results") -> str:
    """Return the routers with their accuracy on digits and on affine digits, their memory and whether they matter."""
    digits, moved = (read_json(Comparison, folder / f"compare-{name}.json") for name in ("digits", "translated_mnist"))
    (test,) = moved.tests
    lines = [
        "| router | digits, accuracy % | translated | affine | changed % | training step, MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    by_router = {row.router: row for row in moved.rows}
    for row in digits.rows:
        other = by_router[row.router]
        cells = [
            *(format_statistic(value, 1, 100) for value in (row.test_accuracy, other.test_accuracy, other.tests[test])),
            format_statistic(other.changed, 1, 100),
            f"{other.memory_mb:.0f}",
        ]
        lines.append(f"| `{row.router}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def faithful(file: Path = ROOT / "results" / "faithfulness.json") -> str:
    """Return the deletion and insertion of each explanation and network in Markdown."""
    table = json.loads(file.read_text())
    lines = ["| weights | images | method | deletion | insertion |", "|---|---|---|---:|---:|"]
    for name, result in sorted(table.items()):
        for row in result["rows"]:
            values = [f"{value:.3f}" for value in row["accuracies"].values()]
            lines.append(
                f"| `{name}` | {row['count']} of `{result['data']}` | `{row['name']}` | {' | '.join(values)} |"
            )
    return "\n".join(lines)


def installs(file: Path = ROOT / "results" / "install.json") -> str:
    """Return sizes and times of the installations into empty environments in Markdown."""
    if not file.exists():
        return "No installation is recorded yet."
    table = json.loads(file.read_text())
    lines = [
        "| compiler | extras | packages | their size | wheel | installed | `import torch` | then `import torchcaps` "
        "| `torchcaps --version` |",
        f"|---|---|{'---:|' * 7}",
    ]
    for row in table["installs"]:
        cells = (
            "yes" if row["compiler"] else "no",
            row["extras"],
            row["packages"],
            f"{row['package_mb']:.0f} MB",
            f"{row['wheel_mb']:.1f} MB",
            f"{row['installed_mb']:.1f} MB",
            f"{row['import_torch_seconds']:.2f} s",
            f"{row['import_seconds']:.2f} s",
            f"{row['version_seconds']:.2f} s",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    machine, versions = table["machine"], table["versions"]
    about = f"{machine['processor']}, Python {versions['python']}, torch {versions['torch']}"
    about = f"Times are those of the processor; {about}."
    return "\n".join([*lines, "", about])


def precisions(
    file: Path = ROOT / "results" / "precision.json",
    step: Path = ROOT / "benchmarks" / "results" / "precision.json",
) -> str:
    """Return what training in 16 bits saves and costs in Markdown: `digits` in both, and a step of `capsnet`."""
    runs = json.loads(file.read_text())["runs"]
    rows = {row["candidate"]: row for row in read_result(step)["rows"]}
    lines = [
        "| precision | `digits`, test accuracy % | runs | processor's minutes each | a step of `capsnet`, ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        some = [run for run in runs if run["precision"] == name]
        timed = [run["processor_seconds"] for run in some if run["processor_seconds"] is not None]
        accuracy = format_statistic(summarize(run["results"]["test_accuracy"] for run in some), 2, 100)
        minutes = format_statistic(summarize(timed), 1, 1 / 60) if timed else ""
        taken = 1e3 * row["processor"]["step"]["min"]
        lines.append(f"| `{name}` | {accuracy} | {len(some)} | {minutes} | {taken:.0f} |")
    return "\n".join([*lines, "", f"One thread, {runs[0]['machine']['processor']}; times are those of the processor."])


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"highlights": highlights},
    "docs/benchmarks.md": {"routers": routers},
    "docs/claims.md": {"claims": claims, "pose": partial(measured, "pose"), "equivariance": equivariance},
    "docs/comparison.md": {"comparison": comparison},
    "docs/evaluation.md": {"ood": partial(measured, "ood"), "adversarial": partial(measured, "adversarial")},
    "docs/howto/install.md": {"installs": installs},
    "docs/howto/which_model.md": {"choice": choice},
    "docs/own_images.md": {"images": image_sets},
    "docs/kernels.md": {"support": support, "roofline": roofline, "compiled": compiled},
    "docs/signals.md": {"signals": signal_sets},
    "docs/tokens.md": {"tokens": token_sets},
    "docs/models.md": {"models": models, "shipped weights": shipped},
    "docs/reproductions.md": {"reproductions": reproductions},
    "docs/export.md": {"export speed": exported_speed, "int8": exported_int8},
    "docs/explanations.md": {"faithfulness": faithful},
    "docs/serving.md": {"serving": serving},
    "docs/results.md": {"headlines": headlines, "results": results, "speed": speed},
    "docs/security.md": {"fuzzing": fuzzing, "attack": attacked, "bombs": bombs},
    "docs/training.md": {"precision": precisions, "faults": faults},
}


def update(text: str, page: str = "README.md") -> str:
    """Return the text of a page with each table replaced between its two marks."""
    for name, make in PAGES[page].items():
        begin, end = f"<!-- {name}: made by scripts/make_tables.py -->", f"<!-- end of {name} -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ValueError(f"{page}: expected the marks '{begin}' and '{end}', which are missing")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


if __name__ == "__main__":
    for source in sys.argv[1:]:
        print(*record(Path(source)), sep="\n")
    for file in (ROOT / "results").glob("compare-*.json"):
        draw_comparison(file)
    write_recorded()
    write_recorded_protocols()
    draw_claims()
    for page in PAGES:
        (ROOT / page).write_text(update((ROOT / page).read_text(), page))
