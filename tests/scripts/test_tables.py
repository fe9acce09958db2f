import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shipping import ship
from torchcaps.bench.compare_table import summarise
from torchcaps.models import pretrained
from torchcaps.reproduce import list_reproductions, load_reproduction, plan
from torchcaps.reproduce.table import summarise as summarise_network

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


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md", "docs/models.md", "docs/reproductions.md"])
def test_the_pages_show_what_was_measured(page):
    text = (ROOT / page).read_text()
    assert script("make_tables").update(text, page) == text, "run scripts/make_tables.py"


def test_marks_that_are_missing():
    with pytest.raises(ValueError, match=r"README\.md: expected the marks '<!-- headlines"):
        script("make_tables").update("no marks")
    with pytest.raises(ValueError, match=r"docs/comparison\.md: expected the marks '<!-- comparison"):
        script("make_tables").update("no marks", "docs/comparison.md")


def comparison(status: str) -> dict[str, Any]:
    return {
        "comparison": "tiny",
        "status": status,
        "date": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789abcdef",
        "versions": {"torchcaps": "0.1.0", "torch": "2.13.0"},
        "machine": {"processor": "a processor", "threads": 2},
        "seeds": [0, 1],
        "tests": [],
        "recipe": {"model": {"name": "m"}, "data": {"name": "d"}, "trainer": {"epochs": 3}},
        "rows": [summarise("dynamic", {}, [{"seed": seed, "status": "failed", "error": "no"} for seed in (0, 1)])],
    }


def test_a_comparison_goes_into_the_docs(tmp_path):
    tables = script("make_tables")
    assert tables.comparison(tmp_path) == "No comparison has been recorded yet."
    (tmp_path / "compare.json").write_text(json.dumps(comparison("finished")))
    assert tables.enter(tmp_path, tmp_path, tmp_path) == [tmp_path / "compare-tiny.json"]
    assert (tmp_path / "compare-tiny.svg").read_text().startswith("<?xml")
    text = tables.comparison(tmp_path)
    assert text.startswith("## tiny\n\n`m` on `d`, 3 epochs, seeds 0, 1; a processor, 2 threads, torch 2.13.0")
    assert "| dynamic |" in text
    assert "(images/compare-tiny.svg)" in text


def test_the_readme_takes_nothing_else_for_a_run(tmp_path):
    (tmp_path / "compare-tiny.json").write_text(json.dumps(comparison("finished")))
    (tmp_path / "reproduce-vote_plane.json").write_text(json.dumps(reproduction()))
    assert len(script("make_tables").results(tmp_path).splitlines()) == 2


def test_a_comparison_that_is_not_finished(tmp_path):
    (tmp_path / "compare.json").write_text(json.dumps(comparison("stopped")))
    with pytest.raises(ValueError, match=r"expected a finished comparison, got one that is stopped; run it again"):
        script("make_tables").enter(tmp_path, tmp_path, tmp_path)


def reproduction(*changes: str) -> dict[str, Any]:
    entry = load_reproduction("vote_plane")
    (planned,) = plan(entry)
    run = {**result(0.9, 0), "status": "finished", "folder": planned.folder, "measured": {}}
    return {
        "reproduction": entry.name,
        "changes": list(changes),
        "columns": [],
        "rows": [summarise_network(entry.networks[0], [run])],
        "status": "finished",
        "pictures": {"vote_plane": "pictures/vote_plane-vote_plane.png"},
    }


def test_a_reproduction_goes_into_the_docs(tmp_path):
    tables, docs = script("make_tables"), tmp_path / "docs"
    text = tables.reproductions(tmp_path)
    assert text.count("## ") == text.count(": not run yet.") == len(list_reproductions())
    (tmp_path / "pictures").mkdir()
    docs.mkdir()
    (tmp_path / "pictures" / "vote_plane-vote_plane.png").write_bytes(b"picture")
    (tmp_path / "reproduction-vote_plane.json").write_text(json.dumps(reproduction()))
    assert tables.enter(tmp_path, tmp_path, docs) == [tmp_path / "reproduce-vote_plane.json"]
    assert (docs / "reproduce-vote_plane-vote_plane.png").read_bytes() == b"picture"
    text = tables.reproductions(tmp_path)
    assert text.count(": not run yet.") == len(list_reproductions()) - 1
    assert "| CapsNet |  |  |  | 3 | 12,345 | 1.5 | 1 | 2 cores, a processor |" in text
    assert "(images/reproduce-vote_plane-vote_plane.png)" in text


def test_what_was_recorded_before_stays_beside_what_is_new():
    old, new = reproduction(), reproduction()
    old["rows"].append({**old["rows"][0], "label": "elsewhere"})
    new["rows"].append({"label": "elsewhere", "runs": [{"status": "not run"}]})
    new["rows"].append({"label": "nowhere", "runs": []})
    new |= {"status": "partial", "pictures": {"other": "pictures/other.png"}}
    both = script("make_tables").merged(old, new)
    assert both["rows"] == [new["rows"][0], old["rows"][1], new["rows"][2]]
    assert both["pictures"] == {**new["pictures"], **old["pictures"]}
    assert both["status"] == "partial"
    assert script("make_tables").merged(old, {**new, "rows": new["rows"][:2]})["status"] == "finished"


def test_a_picture_of_fewer_networks_does_not_take_the_place_of_one_of_more(tmp_path):
    tables, picture = script("make_tables"), tmp_path / "reproduce-vote_plane-vote_plane.png"
    source, drawn = tmp_path / "reproduction-vote_plane.json", tmp_path / "pictures" / "vote_plane-vote_plane.png"
    drawn.parent.mkdir()
    for content, runs in ((b"first", None), (b"again", None), (b"without", [])):
        result = reproduction()
        result["rows"][0]["runs"] = result["rows"][0]["runs"] if runs is None else runs
        source.write_text(json.dumps(result))
        drawn.write_bytes(content)
        tables.enter(tmp_path, tmp_path, tmp_path)
        assert picture.read_bytes() == (content if runs is None else b"again")


def test_a_trial_does_not_go_into_the_docs(tmp_path):
    (tmp_path / "reproduction-vote_plane.json").write_text(json.dumps(reproduction("trainer.epochs=1")))
    with pytest.raises(ValueError, match=r"expected the recipes as they are, got changed ones \(trainer\.epochs=1\)"):
        script("make_tables").enter(tmp_path, tmp_path, tmp_path)


def test_a_folder_with_nothing_to_enter(tmp_path):
    with pytest.raises(ValueError, match=r"expected compare\.json or reproduction-NAME\.json, got a folder without"):
        script("make_tables").enter(tmp_path, tmp_path, tmp_path)


def test_every_result_of_a_reproduction_has_its_pictures():
    for file in (ROOT / "results").glob("reproduce-*.json"):
        for name in json.loads(file.read_text())["pictures"]:
            assert (ROOT / "docs" / "images" / f"{file.stem}-{name}.png").exists()


def test_a_row_has_mean_and_deviation(tmp_path):
    runs = [result(0.97, 0), result(0.99, 1)]
    (tmp_path / "a.json").write_text(json.dumps({"recipe": "a", "model": "m", "data": "d", "runs": runs}))
    line = script("make_tables").results(tmp_path).splitlines()[-1]
    assert line == "| `a` | `m` | 12,345 | 3 | 98.00 ± 1.41 % | 2 | 1.5 | 2 cores, a processor |"


def test_the_headlines_are_what_was_measured_of_chosen_networks(tmp_path):
    tables = script("make_tables")
    assert len(tables.headlines(tmp_path).splitlines()) == 2
    capsules, cnn = load_reproduction("digit_pairs").networks
    run = {"status": "finished", "epochs": 3, "seconds": 90.0, "parameters": 12345}
    rows = [summarise_network(capsules, [run | {"measured": {"both right": 97.5}}]), summarise_network(cnn, [])]
    (tmp_path / "reproduce-digit_pairs.json").write_text(json.dumps({"rows": rows}))
    *_, line = lines = tables.headlines(tmp_path).splitlines()
    assert len(lines) == 3
    assert line.endswith(f"| {capsules.label} | both right | 90 | 97.50 | 12,345 | 2 |")


def test_shipped_weights_stand_with_their_cards(tmp_path, monkeypatch):
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
