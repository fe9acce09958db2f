from __future__ import annotations

from torchcaps.reproduce import load_reproduction, write_report
from torchcaps.reproduce.table import summarise
from torchcaps.viz import Figure

from .entries import write_entry
from .test_table import run


def test_one_page_holds_everything(tmp_path):
    cnn, capsules = load_reproduction(write_entry(tmp_path)).networks
    (tmp_path / "pictures").mkdir()
    Figure().savefig(tmp_path / "pictures" / "tiny-vote_plane.png")
    result = {
        "reproduction": "tiny",
        "title": "Tiny <table>",
        "source": "Nobody 2026",
        "note": "",
        "columns": ["error"],
        "changes": ["trainer.epochs=1"],
        "rows": [
            {**summarise(cnn, [run(0, error=0.5)]), "recipe": {"seed": 7}},
            {**summarise(capsules, [{"seed": 0, "status": "not run"}]), "recipe": {"seed": 7}},
        ],
        "pictures": {"vote_plane": "pictures/tiny-vote_plane.png"},
        "not drawn": {"overlays": "runs: expected pairs, got none"},
    }
    path = write_report(result, tmp_path)
    text = path.read_text()
    assert path == tmp_path / "report-tiny.html"
    assert "<h1>Tiny &lt;table&gt;</h1>" in text
    assert "<strong>1 of 2</strong> runs finished" in text
    assert "The recipes were changed: trainer.epochs=1." in text
    assert "<tr><td>CNN</td><td>error</td><td>0.39</td><td>0.50</td>" in text
    assert '<img src="data:image/png;base64,' in text
    assert '<h2>Overlays</h2>\n<p class="muted">Left out: runs: expected pairs, got none.</p>' in text
    assert '<h2>CNN</h2>\n<div class="scroll"><table>\n<tbody>\n<tr><th scope="row">seed</th><td>7</td>' in text
    assert "http" not in text.replace("http-equiv", "")
