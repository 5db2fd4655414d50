"""Every example runs as a reader would run it, with few rounds, and says what its docstring promises."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragfl.config.spec import load

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
SPECS = sorted(EXAMPLES.glob("*.toml"))
SAYS = {  # a piece of what each script prints
    "functional": "[1.2333333492279053, 1.7000000476837158]",
    "own_aggregate": "ClippedMean keeps the contract",
    "own_attack": "br_drag: accuracy",
    "own_correction": "leash x DRAG: accuracy",
    "own_model_and_data": "classes at the four centres",
    "root_only": "seed 2, BR-DRAG",
    "simulate": "'drag'",
}


def _run(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), "2"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """All scripts, two at a time: most of their time is the import of torch."""
    folder = tmp_path_factory.mktemp("examples")
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda script: _run(script, folder), SCRIPTS)
        return dict(zip([script.stem for script in SCRIPTS], done, strict=True))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_runs(script: Path, finished: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = finished[script.stem]
    assert done.returncode == 0, done.stderr
    assert done.stdout and SAYS.get(script.stem, "") in done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_says_what_it_shows(script: Path) -> None:
    assert ast.get_docstring(ast.parse(script.read_text()))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_spec_loads(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file lies, since it may name modules beside it."""
    monkeypatch.chdir(EXAMPLES)
    experiment = load(spec)
    assert load(experiment.tables()) == experiment
    assert spec.read_text().startswith("#")
