"""Below each block of a tutorial, what it printed or drew: the results in the notebook of the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def read_outputs(notebook: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the outputs of the cells of a notebook by their code."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return {"".join(cell["source"]).strip(): cell["outputs"] for cell in cells if cell["cell_type"] == "code"}


def to_nodes(outputs: list[dict[str, Any]]) -> list[nodes.Node]:
    """Return the printed text in one block, and a picture for each figure."""
    text = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout").rstrip("\n")
    found: list[nodes.Node] = []
    if text:
        found.append(nodes.literal_block(text, text, language="text", classes=["output"]))
    for output in outputs:
        if picture := output.get("data", {}).get("image/png"):
            address = f"data:image/png;base64,{''.join(picture.split())}"
            found.append(nodes.raw("", f'<img class="output" alt="the figure" src="{address}">', format="html"))
    return found


def add_outputs(app: Any, document: nodes.document) -> None:
    """Add the results to a page that has a notebook."""
    notebook = NOTEBOOKS / f"{Path(app.env.docname).name}.ipynb"
    if not app.env.docname.startswith("tutorials/") or not notebook.exists():
        return
    app.env.note_dependency(str(notebook))
    outputs = read_outputs(notebook)
    for block in list(document.findall(nodes.literal_block)):
        block.parent[block.parent.index(block) + 1 : block.parent.index(block) + 1] = to_nodes(
            outputs.get(block.astext().strip(), [])
        )


def setup(app: Any) -> dict[str, Any]:
    """Connect the handler; Sphinx calls this function."""
    app.connect("doctree-read", add_outputs)
    return {"parallel_read_safe": True}
