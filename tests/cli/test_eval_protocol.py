from __future__ import annotations

import json
from pathlib import Path


def test_table_result_and_figure(run: Path, ask, ask_json) -> None:
    document = ask_json("eval", run, "--protocol", "corruptions")
    saved = json.loads((run / "protocol-corruptions.json").read_text())
    assert saved["rows"] == document["rows"]
    assert Path(document["figure"]).read_bytes().startswith(b"\x89PNG")
    code, out, err = ask("eval", run, "--protocol", "corruptions")
    assert (code, err) == (0, "")
    assert "gaussian noise" in out
    assert "protocol-corruptions.png" in out


def test_unknown_protocol(run: Path, ask) -> None:
    code, _, err = ask("eval", run, "--protocol", "corruption")
    assert code == 2
    assert err.strip() == "unknown protocol 'corruption'; did you mean 'corruptions'?"


def test_protocol_rejects_data_options(run: Path, ask) -> None:
    code, _, err = ask("eval", run, "--protocol", "corruptions", "--split", "val")
    assert code == 2
    assert err.startswith("--protocol: ")
