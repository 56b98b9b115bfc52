"""The tutorial notebooks run from top to bottom, show their results, and are stored without them."""

from __future__ import annotations

import json
import os
import sys

import pytest

from . import warm
from .blocks import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "tutorial").glob("*.ipynb"))
SHOWN = ("result", "result.metrics", "result.parties", "swept", "found", "searched")
"""Last lines of cells that have to show a table."""


def name(path):
    return path.name


def test_the_notebooks_are_found():
    assert [path.name for path in NOTEBOOKS] == ["compare-methods.ipynb", "first-run.ipynb", "own-data.ipynb",
                                                   "scikit-learn.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_it_is_stored_without_output(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.filterwarnings("ignore")  # what the notebook machinery warns of is its own affair
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_it_runs_and_shows_its_results(path, tmp_path, monkeypatch, socket):
    pytest.importorskip("ipykernel")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])))
    start = [*warm.command(socket), "kernel"] if socket else [sys.executable, "-m", "ipykernel_launcher"]
    kernel = tmp_path / "kernels" / "tequio" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps({"argv": [*start, "-f", "{connection_file}"], "language": "python",
                                  "display_name": "Python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    for folder in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(folder, str(tmp_path / folder))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="tequio",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
    ending = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.split("\n")[-1] in SHOWN]
    assert ending
    for cell in ending:
        shown = [output["data"]["text/html"] for output in cell.outputs if output.output_type == "execute_result"]
        assert "<table" in shown[0]
