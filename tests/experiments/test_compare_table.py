from __future__ import annotations

from typing import Any

from torchcaps.experiments import (
    Comparison,
    RouterMetrics,
    RouterRow,
    RouterRun,
    compare_lines,
    compare_markdown,
    summarize_router,
)


def run(seed: int, **changes: Any) -> RouterRun:
    values = {
        "test_accuracy": 0.97 + 0.01 * seed,
        "val_accuracy": 0.95,
        "epoch_seconds": 2.0,
        "seconds": 60.0,
        "parameters": 12345,
        "memory_mb": 31.4 if seed == 0 else None,
        "entropy": 0.8,
        "dead": 0.25,
        "logit_change": 0.125,
        "gradient_norm": 0.03,
        "tests": {"mnist": 0.5},
    }
    return RouterRun(seed, "finished", RouterMetrics(**{**values, **changes}))


def failed(seed: int, error: str) -> RouterRun:
    return RouterRun(seed, "failed", error=error)


def result(*rows: RouterRow) -> Comparison:
    return Comparison(
        recipe={"name": "r", "model": {"name": "m"}, "data": {"name": "d"}, "trainer": {"epochs": 3}},
        status="finished",
        date="2026-01-02T03:04:05+00:00",
        commit=None,
        versions={"torchcaps": "0.1.0", "torch": "2.13.0"},
        machine={"processor": "a processor", "threads": 2},
        seeds=[0, 1],
        tests=["mnist"],
        rows=list(rows),
    )


def test_line_has_means_and_deviations():
    header, cells = compare_lines(result(summarize_router("em", {}, [run(0), run(1)])))
    assert dict(zip(header, cells, strict=True)) == {
        "router": "em",
        "parameters": "12,345",
        "test accuracy": "97.50 ± 0.71 %",
        "on mnist": "50.00 ± 0.00 %",
        "val accuracy": "95.00 ± 0.00 %",
        "runs": "2",
        "s per epoch": "2.00 ± 0.00",
        "minutes": "1.0 ± 0.0",
        "step, MB": "31",
        "entropy": "0.800 ± 0.000",
        "changed": "",
        "dead": "25.0 ± 0.0 %",
        "logit change": "0.125 ± 0.000",
        "gradient norm": "0.0300 ± 0.0000",
    }


def test_empty_columns_are_omitted():
    old = summarize_router("old", {}, [run(0, logit_change=None, gradient_norm=None)])
    new = summarize_router("new", {}, [run(0, logit_change=None)])
    assert compare_lines(result(old))[0][-1] == "dead"
    header, *cells = compare_lines(result(old, new))
    assert header[-2:] == ["dead", "gradient norm"]
    assert [line[-1] for line in cells] == ["", "0.0300"]


def test_notes():
    rows = [
        summarize_router(
            "a", {}, [run(0, memory_mb=None, memory_error="killed by signal 9"), failed(1, "out of paper")]
        ),
        summarize_router("b", {}, [failed(0, "no"), failed(1, "no")]),
        summarize_router("c", {}, [failed(0, "no"), failed(1, "nor this")]),
        summarize_router("d", {}, [failed(0, "no")]),
        summarize_router("e", {}, [run(0), run(1)]),
    ]
    header, *cells = compare_lines(result(*rows))
    assert header[-1] == "note"
    assert [line[-1] for line in cells] == [
        "seed 1: out of paper; memory: killed by signal 9",
        "no",
        "seed 0: no; seed 1: nor this",
        "seed 0: no",
        "",
    ]
    assert cells[0][2] == "97.00 %"
    assert cells[0][8] == ""
    assert cells[1][1:5] == ["", "", "", ""]


def test_markdown_has_provenance():
    text = compare_markdown(result(summarize_router("em", {}, [run(0)]))).splitlines()
    assert text[0] == (
        "`m` on `d`, 3 epochs, seeds 0, 1; a processor, 2 threads, torch 2.13.0, "
        "torchcaps 0.1.0 (commit unknown), 2026-01-02."
    )
    assert text[2].startswith("| router | parameters | test accuracy | on mnist |")
    assert text[3].count("|") == text[2].count("|") == text[4].count("|")
