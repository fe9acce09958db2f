"""Make notebooks of the tutorials and run them: `python scripts/run_tutorials.py [FOLDER] [NAME ...]`.

The pages of docs/tutorials are Markdown; jupytext reads their blocks of Python as cells. Each notebook runs in an empty
folder and is written with its results to FOLDER (default: notebooks).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
# Seconds after which a cell hangs rather than computes, on a busy machine as well.
TIMEOUT = 3600
# The first cell of each notebook.
SHOW_FIGURES = "%matplotlib inline"
PAGES = sorted(page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.stem != "index")


def read_notebook(page: Path) -> nbformat.NotebookNode:
    """Return a tutorial as a notebook without results; equal pages give equal notebooks."""
    notebook = jupytext.read(page)
    notebook.cells.insert(1, nbformat.v4.new_code_cell(SHOW_FIGURES))
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        # Links of the page lead to the documentation.
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("](../", "](../docs/")
    return notebook


def run_notebook(page: Path, folder: Path) -> nbformat.NotebookNode:
    """Run a tutorial in a folder, and return the notebook with its results."""
    notebook = read_notebook(page)
    NotebookClient(
        notebook, timeout=TIMEOUT, startup_timeout=TIMEOUT, resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        # Times, which differ from run to run.
        cell.metadata.pop("execution", None)
    return notebook


def main() -> None:
    """Run the notebooks of the command line and write them."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "notebooks")
    chosen = sys.argv[2:] or [page.stem for page in PAGES]
    out.mkdir(exist_ok=True)
    for page in PAGES:
        if page.stem in chosen:
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(run_notebook(page, Path(folder)), out / f"{page.stem}.ipynb")
            print(f"{page.stem}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
