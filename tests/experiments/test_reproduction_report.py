from __future__ import annotations

import re
from dataclasses import replace

from torchcaps.experiments import (
    FigureFile,
    NetworkRun,
    load_reproduction,
    summarize_network,
    write_reproduction_report,
)
from torchcaps.viz import Figure

from .entries import write_entry
from .test_reproduction_table import result_of, run


def test_page_contains_everything(tmp_path):
    entry = load_reproduction(write_entry(tmp_path))
    cnn, capsules = entry.networks
    (tmp_path / "figures").mkdir()
    Figure().savefig(tmp_path / "figures" / "tiny-vote_plane.png")
    rows = [
        summarize_network(cnn, [run(0, {"error": 0.5})], {"seed": 7}),
        summarize_network(capsules, [NetworkRun(0, "x", "not run")], {"seed": 7}),
    ]
    figures = {"vote_plane": FigureFile("figures/tiny-vote_plane.png", "A <caption>.", "Votes")}
    result = replace(result_of(entry, rows, figures=figures), changes=["trainer.epochs=1"])
    path = write_reproduction_report(replace(result, failed_figures={"coupling": "no <routing>"}), tmp_path)
    text = path.read_text()
    assert path == tmp_path / "report-tiny.html"
    assert "<h1>TRIAL with trainer.epochs=1, not the experiment: Tiny &lt;table&gt;</h1>" in text
    assert "<strong>1 of 2</strong> runs finished" in text
    assert "The recipes were changed: trainer.epochs=1." in text
    assert "<tr><td>CNN</td><td>error ↓</td><td>0.39</td><td>0.50</td>" in text
    assert '<img src="data:image/png;base64,' in text
    assert "<figcaption>A &lt;caption&gt;.</figcaption>" in text
    assert '<p class="muted">Not available: no &lt;routing&gt;.</p>' in text
    row = r'<summary>CNN</summary>\s*<div class="scroll"><table>\s*<tbody>\s*<tr><th scope="row">seed</th><td>7</td>'
    assert re.search(row, text)
    assert "http" not in text.replace("http-equiv", "")
