import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shipping import ship
from torchcaps.experiments import (
    Comparison,
    FigureFile,
    NetworkMetrics,
    NetworkRun,
    ReproductionResult,
    RouterMetrics,
    RouterRun,
    list_reproductions,
    load_reproduction,
    plan_runs,
    read_json,
    summarize_network,
    summarize_router,
    write_json,
)
from torchcaps.models import pretrained

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(accuracy: float, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "parameters": 12345,
        "epochs": 3,
        "seconds": 90.0,
        "results": {"test_accuracy": accuracy},
        "machine": {"cores": 2, "processor": "a processor"},
    }


@pytest.mark.parametrize("page", sorted(script("make_tables").PAGES))
def test_pages_are_up_to_date(page):
    text = (ROOT / page).read_text()
    assert script("make_tables").update(text, page) == text, "run scripts/make_tables.py"


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("compare-*.json")), ids=lambda file: file.stem)
def test_comparison_figures_are_up_to_date(file, tmp_path):
    def texts(figure: Path) -> list[str]:
        return sorted(re.findall(r"<!-- (.*?) -->", figure.read_text()))

    drawn = script("make_tables").draw_comparison(file, tmp_path)
    assert texts(ROOT / "docs" / "images" / drawn.name) == texts(drawn), "run scripts/make_tables.py"


def test_missing_marks():
    with pytest.raises(ValueError, match=r"README\.md: .*<!-- highlights"):
        script("make_tables").update("no marks")
    with pytest.raises(ValueError, match=r"docs/comparison\.md: .*<!-- comparison"):
        script("make_tables").update("no marks", "docs/comparison.md")


def comparison(status: str) -> Comparison:
    return Comparison(
        recipe={"name": "tiny", "model": {"name": "m"}, "data": {"name": "d"}, "trainer": {"epochs": 3}},
        status=status,
        date="2026-01-02T03:04:05+00:00",
        commit="0123456789abcdef",
        versions={"torchcaps": "0.1.0", "torch": "2.13.0"},
        machine={"processor": "a processor", "threads": 2},
        seeds=[0, 1],
        tests=[],
        rows=[summarize_router("dynamic", {}, [RouterRun(seed, "failed", error="no") for seed in (0, 1)])],
    )


def test_recorded_comparison(tmp_path):
    tables = script("make_tables")
    assert tables.comparison(tmp_path) == "No comparison is recorded yet."
    write_json(tmp_path / "compare.json", comparison("finished"))
    assert tables.record(tmp_path, tmp_path, tmp_path) == [tmp_path / "compare-tiny.json"]
    assert (tmp_path / "compare-tiny.svg").read_text().startswith("<?xml")
    text = tables.comparison(tmp_path)
    assert text.startswith("## tiny\n\n`m` on `d`, 3 epochs, seeds 0, 1; a processor, 2 threads, torch 2.13.0")
    assert "| dynamic |" in text
    assert "(images/compare-tiny.svg)" in text


def test_recorded_folder_of_images(tmp_path):
    tables = script("make_tables")
    assert tables.image_sets(tmp_path) == "No folder of images is recorded yet."
    plain = comparison("finished")
    metrics = RouterMetrics(0.9, 0.8, 1.0, 60.0, 1234, f1_macro=0.875, f1_interval=[0.75, 0.9375])
    rows = [summarize_router(name, {}, [RouterRun(0, "finished", metrics)]) for name in ("dynamic", "backbone_linear")]
    recipe = {**plain.recipe, "data": {"name": "folder", "options": {"path": "/home/someone/birds"}}}
    write_json(tmp_path / "compare.json", replace(plain, recipe=recipe, rows=rows))
    (file,) = tables.record(tmp_path, tmp_path, tmp_path)
    assert "someone" not in file.read_text()
    assert not list(tmp_path.glob("*.svg"))
    assert tables.comparison(tmp_path) == "No comparison is recorded yet."
    assert tables.image_sets(tmp_path).splitlines()[2:] == [
        "| tiny | capsules, `dynamic` | 1,234 | 90.0 | 87.5 | 87.5 (75.0 to 93.8) |",
        "| tiny | linear | 1,234 | 90.0 | 87.5 | 87.5 (75.0 to 93.8) |",
    ]


def test_recorded_sentences(tmp_path):
    tables = script("make_tables")
    plain = comparison("finished")
    metrics = RouterMetrics(0.9, 0.8, 1.0, 60.0, 1234, f1_macro=0.875, f1_interval=[0.75, 0.9375])
    rows = [summarize_router(name, {}, [RouterRun(0, "finished", metrics)]) for name in ("heinsen", "token_mean")]
    recipe = {**plain.recipe, "data": {"name": "trec", "options": {"length": 20}}}
    write_json(tmp_path / "compare.json", replace(plain, recipe=recipe, rows=rows))
    (file,) = tables.record(tmp_path, tmp_path, tmp_path)
    assert file.name == "tokens-tiny.json"
    assert tables.token_sets(tmp_path).splitlines()[2:] == [
        "| tiny | capsules, `heinsen` | 1,234 | 90.0 | 87.5 | 87.5 (75.0 to 93.8) |",
        "| tiny | mean | 1,234 | 90.0 | 87.5 | 87.5 (75.0 to 93.8) |",
    ]


def test_results_contain_runs_only(tmp_path):
    write_json(tmp_path / "compare-tiny.json", comparison("finished"))
    write_json(tmp_path / "reproduce-vote_plane.json", reproduction())
    assert len(script("make_tables").results(tmp_path).splitlines()) == 2


def test_unfinished_comparison(tmp_path):
    write_json(tmp_path / "compare.json", comparison("stopped"))
    with pytest.raises(ValueError, match="'stopped'"):
        script("make_tables").record(tmp_path, tmp_path, tmp_path)


FIGURE = FigureFile("figures/vote_plane-vote_plane.png", "A caption.", "Votes")


def reproduction(*changes: str) -> ReproductionResult:
    entry = load_reproduction("vote_plane")
    (planned,) = plan_runs(entry)
    metrics = NetworkMetrics({}, 3, 12345, 90.0, {"cores": 2, "processor": "a processor"})
    return ReproductionResult(
        name=entry.name,
        title=entry.title,
        source=entry.source,
        note=entry.note,
        metric=entry.metric,
        columns=[],
        changes=list(changes),
        status="finished",
        date="",
        rows=[summarize_network(entry.networks[0], [NetworkRun(0, planned.folder, "finished", metrics)], {})],
        figures={"vote_plane": FIGURE},
    )


def test_recorded_reproduction(tmp_path):
    tables, docs = script("make_tables"), tmp_path / "docs"
    text = tables.reproductions(tmp_path)
    assert text.count("## ") == text.count(": not run yet.") == len(list_reproductions())
    (tmp_path / "figures").mkdir()
    docs.mkdir()
    (tmp_path / FIGURE.file).write_bytes(b"figure")
    write_json(tmp_path / "reproduction-vote_plane.json", reproduction())
    assert tables.record(tmp_path, tmp_path, docs) == [tmp_path / "reproduce-vote_plane.json"]
    assert (docs / "reproduce-vote_plane-vote_plane.png").read_bytes() == b"figure"
    text = tables.reproductions(tmp_path)
    assert text.count(": not run yet.") == len(list_reproductions()) - 1
    assert "| CapsNet |  |  |  | 3 | 12,345 | 1.5 | 1 | 2 cores, a processor |" in text
    assert "![Votes](images/reproduce-vote_plane-vote_plane.png)" in text


def test_merge_keeps_recorded_rows():
    old, new = reproduction(), reproduction()
    (done,) = old.rows
    elsewhere = replace(done, label="elsewhere")
    missing = replace(done, label="elsewhere", runs=[NetworkRun(0, "x", "not run")])
    never = replace(done, label="never", runs=[])
    other = {"other": FIGURE}
    old = replace(old, rows=[done, elsewhere])
    new = replace(new, rows=[done, missing, never], status="partial", figures=other)
    both = script("make_tables").merge(old, new)
    assert both.rows == [done, elsewhere, never]
    assert both.figures == {"vote_plane": FIGURE, **other}
    assert both.status == "partial"
    assert script("make_tables").merge(old, replace(new, rows=[done, missing])).status == "finished"


def test_figure_of_fewer_networks_replaces_none(tmp_path):
    tables, figure = script("make_tables"), tmp_path / "reproduce-vote_plane-vote_plane.png"
    source, drawn = tmp_path / "reproduction-vote_plane.json", tmp_path / FIGURE.file
    drawn.parent.mkdir()
    for content, finished in ((b"first", True), (b"again", True), (b"without", False)):
        result = reproduction()
        write_json(source, result if finished else replace(result, rows=[replace(result.rows[0], runs=[])]))
        drawn.write_bytes(content)
        tables.record(tmp_path, tmp_path, tmp_path)
        assert figure.read_bytes() == (content if finished else b"again")


def test_changed_recipes_are_not_recorded(tmp_path):
    write_json(tmp_path / "reproduction-vote_plane.json", reproduction("trainer.epochs=1"))
    with pytest.raises(ValueError, match=r"trainer\.epochs=1"):
        script("make_tables").record(tmp_path, tmp_path, tmp_path)


def test_folder_without_results(tmp_path):
    with pytest.raises(ValueError, match=r"source: .*compare\.json"):
        script("make_tables").record(tmp_path, tmp_path, tmp_path)


def test_every_recorded_figure_exists():
    for file in (ROOT / "results").glob("reproduce-*.json"):
        for name in read_json(ReproductionResult, file).figures:
            assert (ROOT / "docs" / "images" / f"{file.stem}-{name}.png").exists()


def test_row(tmp_path):
    runs = [result(0.97, 0), result(0.99, 1)]
    (tmp_path / "a.json").write_text(json.dumps({"recipe": "a", "model": "m", "data": "d", "runs": runs}))
    line = script("make_tables").results(tmp_path).splitlines()[-1]
    assert line == "| `a` | `m` | 12,345 | 3 | 98.00 ± 1.41 % | 2 | 1.5 | 2 cores, a processor |"


def test_headlines(tmp_path):
    tables = script("make_tables")
    assert len([line for line in tables.headlines(tmp_path).splitlines() if line.startswith("|")]) == 2
    capsules, cnn = load_reproduction("digit_pairs").networks
    metrics = NetworkMetrics({"both correct": 97.5}, 3, 12345, 90.0, {})
    rows = [
        summarize_network(capsules, [NetworkRun(0, "x", "finished", metrics)], {}),
        summarize_network(cnn, [], {}),
    ]
    write_json(tmp_path / "reproduce-digit_pairs.json", replace(reproduction(), rows=rows))
    *_, line = lines = [line for line in tables.headlines(tmp_path).splitlines() if line.startswith("|")]
    assert len(lines) == 3
    assert line.endswith(f"| {capsules.label} | both correct ↑ | 90 | 97.50 | 12,345 | 2 |")


def test_shipped_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    tables = script("make_tables")
    assert tables.shipped() == "None yet."
    ship(tmp_path, "mnist", commit="0123abc")
    ship(tmp_path, "toys", model="cnn_small", options={}, research_only=True, data_licence="research use only")
    lines = tables.shipped().splitlines()
    size = (tmp_path / "mnist.safetensors").stat().st_size / 1e6
    assert lines[2] == (
        f"| `mnist` | `capsnet_small` | 573,969 | {size:.2f} | `mnist` | CC BY-SA 3.0 | 99.12% of 10,000 | "
        "recipe `digits`, 5 epochs, 2.0 minutes |"
    )
    assert (
        "- `mnist`: Light digits on black. Not for letters. Commit 0123abc, seed 7, torch 2.13.0, a processor." in lines
    )
    assert lines[-1].startswith("- `toys`: Light digits on black. Not for letters. For research only. Commit unknown, ")


def test_recorded_results_in_the_package_are_up_to_date():
    file = ROOT / "src" / "torchcaps" / "reproductions" / "recorded.json"
    assert json.loads(file.read_text()) == script("make_tables").recorded(), "run scripts/make_tables.py"


def test_only_the_networks_of_a_paper_have_its_number():
    rows = [line.split(" | ") for line in script("make_tables").headlines().splitlines() if line.startswith("| ")]
    published = {row[1] for row in rows if row[3].strip() and row[1] != "network"}
    assert "Efficient-CapsNet" in published
    assert not published & {"Branched CapsNet", "Residual CapsNet", "CNN"}


def test_recorded_installations(tmp_path):
    file = tmp_path / "install.json"
    tables = script("make_tables")
    assert tables.installs(file) == "No installation is recorded yet."
    row = {
        "compiler": True,
        "extras": "all",
        "packages": 109,
        "package_mb": 1300.4,
        "wheel_mb": 7.94,
        "installed_mb": 11.2,
    }
    times = {"import_torch_seconds": 1.5, "import_seconds": 0.01, "version_seconds": 0.06}
    about = {"machine": {"processor": "a processor"}, "versions": {"python": "3.11.7", "torch": "2.13.0"}}
    file.write_text(json.dumps({"installs": [{**row, **times}], **about}))
    lines = tables.installs(file).splitlines()
    assert lines[2] == "| yes | all | 109 | 1300 MB | 7.9 MB | 11.2 MB | 1.50 s | 0.01 s | 0.06 s |"
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|")
    assert lines[-1] == "Times are those of the processor; a processor, Python 3.11.7, torch 2.13.0."
