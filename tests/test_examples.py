"""Every example script and notebook runs with few rounds and prints its result; every example spec loads."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot
import pytest
import torch

from dragfl.config.spec import load
from tests.conftest import TIMEOUT_S

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
SPECS = sorted(EXAMPLES.glob("*.toml"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
PRINTED = {  # part of the output of each script
    "gpu_smoke": "equal the CPU",
    "functional": "[1.2333333492279053, 1.7000000476837158]",
    "own_aggregate": "ClippedMean satisfies the contract",
    "own_attack": "br_drag: accuracy",
    "own_correction": "adaptive prox x DRAG: accuracy",
    "own_functions": "trimmed: accuracy",
    "own_model_and_data": "classes at the four centres",
    "root_only": "seed 2, BR-DRAG",
    "simulate": "'drag'",
    "tour": "trimmed mean, non-IID data: ",
}
ARGUMENTS = {"gpu_smoke": ("--device", "cpu")}


@contextmanager
def suppress_success() -> Iterator[None]:
    try:
        yield
    except SystemExit as done:
        assert not done.code


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_runs(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has imported torch already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "argv", [str(script), "2", *ARGUMENTS.get(script.stem, ())])
    with torch.random.fork_rng(), suppress_success():
        runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed and PRINTED.get(script.stem, "") in printed


def test_script_runs_in_a_fresh_interpreter(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "simulate.py"), "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert PRINTED["simulate"] in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_smoke_without_a_gpu() -> None:
    command = [sys.executable, str(EXAMPLES / "gpu_smoke.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("no device 'cuda' here: ") and "--device cpu" in done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_has_a_docstring(script: Path) -> None:
    assert ast.get_docstring(ast.parse(script.read_text()))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_spec_loads(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the file, since it may name modules there."""
    monkeypatch.chdir(EXAMPLES)
    experiment = load(spec)
    assert load(experiment.tables()) == experiment
    assert spec.read_text().startswith("#")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its code cells in order in one namespace, as a kernel does; it is stored without outputs."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    assert "ROUNDS = 60\n" in code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: matplotlib.pyplot.close())
    exec(compile(code.replace("ROUNDS = 60\n", "ROUNDS = 5\n"), str(notebook), "exec"), {"__name__": "notebook"})
    assert PRINTED[notebook.stem] in capsys.readouterr().out
