"""kill -9 at any moment, then resume: the bytes of the run that was never stopped.

The moments are random but seeded: a round to wait for, and a few milliseconds on top, which end up in training, in
the log, in the checkpoint's temporary file, between its two files or in its cleaning up.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import kept_bytes, shell
from tests.runs.processes import LONG, ROUNDS, kill_at, lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody stops."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "x.toml").write_text(LONG)
    done = shell("run", "x.toml", "--out", "r", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert lines(folder / "r") == ROUNDS
    return folder / "r"


def killed_and_resumed(tmp_path: Path, moments: list[tuple[int, float]]) -> Path:
    """Start, kill; resume, kill; ... and let the last one end."""
    (tmp_path / "x.toml").write_text(LONG)
    run = tmp_path / "r"
    for i, (round, delay_s) in enumerate(moments):
        before = lines(run)
        kill_at(run, round, delay_s, *(("run", "x.toml", "--out", "r") if i == 0 else ("resume", run)))
        assert not (run / "result.json").exists(), "killed too late to be a test"
        assert before <= lines(run) + 1, "at most the round in work is lost"
    done = shell("resume", run, "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return run


def test_killed_at_several_moments(tmp_path: Path, whole: Path) -> None:
    draws = np.random.default_rng(20)
    rounds = np.sort(draws.integers(1, ROUNDS - 40, 4))
    moments = [(int(t), float(draws.uniform(0, 0.012))) for t in rounds]
    assert kept_bytes(killed_and_resumed(tmp_path, moments)) == kept_bytes(whole)


def test_killed_before_the_first_round(tmp_path: Path, whole: Path) -> None:
    """Round 0 is logged at once: the process is killed as soon as its directory is there, or while it imports."""
    (tmp_path / "x.toml").write_text(LONG)
    run = tmp_path / "r"
    kill_at(run, 0, 0.5, "run", "x.toml", "--out", "r")
    again = ("resume", run) if (run / "spec.toml").exists() else ("run", "x.toml", "--out", "r")
    done = shell(*again, "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert kept_bytes(run) == kept_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_many_moments(tmp_path: Path, whole: Path, seed: int) -> None:
    draws = np.random.default_rng(seed)
    rounds = np.sort(draws.integers(1, ROUNDS - 40, 8))
    moments = [(int(t), float(draws.uniform(0, 0.02))) for t in rounds]
    assert kept_bytes(killed_and_resumed(tmp_path, moments)) == kept_bytes(whole)
