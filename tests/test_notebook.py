"""docs/first_steps.ipynb runs from its first cell to its last, on a CPU, with few steps."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "first_steps.ipynb"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXIT_TITAN_STEPS", "10")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=3000, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    said = "".join(output.get("text", "") for output in outputs)
    for variant in ("standard", "frozen_qk", "mixit"):
        assert (tmp_path / "runs/first_steps" / variant / "result.json").is_file()
        assert f"\n{variant} " in f"\n{said}"
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not [cell for cell in cells if cell.get("outputs")]
