"""A full disk: exit code 5, the file that could not be written, and a run that resumes to the same bytes.

A limit on file sizes simulates the full disk: writing beyond it fails in the same way.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

import dragfl
from tests.conftest import kept_bytes, shell


def limited(size: int) -> dict[str, object]:
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.conftest import DIGITS

    folder = tmp_path_factory.mktemp("whole")
    (folder / "x.toml").write_text(DIGITS)
    return dragfl.run(dragfl.load(folder / "x.toml"), folder / "r").path


@pytest.mark.parametrize("part", ["checkpoint-00000004.safetensors", "metrics.jsonl"])
def test_disk_full_and_resumed(digits_toml: Path, tmp_path: Path, whole: Path, part: str) -> None:
    """The limit is just below the checkpoint's tensors, or in the middle of the longest log."""
    sizes = {path.name: path.stat().st_size for path in whole.iterdir()}
    tensors = sizes["checkpoint-00000012.safetensors"]
    if part == "metrics.jsonl":
        overrides, limit = ["model.name=logistic", "rounds=60"], tensors + 100
    else:
        overrides, limit = [], tensors - 100
    run = tmp_path / "r"
    answer = shell("run", digits_toml, *overrides, "--out", run, cwd=tmp_path, **limited(limit))
    assert answer.returncode == 5, answer.stderr
    assert f"{part}: cannot be written, the file size limit is reached" in answer.stderr
    assert f"dragfl resume {run}" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not list(run.glob("*.tmp"))

    dragfl.resume(run)
    expected = whole if not overrides else dragfl.run(dragfl.load(digits_toml, *overrides), tmp_path / "w").path
    assert kept_bytes(run) == kept_bytes(expected)


def test_disk_full_from_the_start(digits_toml: Path, tmp_path: Path) -> None:
    answer = shell("run", digits_toml, "--out", tmp_path / "r", cwd=tmp_path, **limited(50))
    assert answer.returncode == 5, answer.stderr
    assert "cannot be written" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert dragfl.run(dragfl.load(digits_toml), tmp_path / "r").result["rounds"] == 12
