"""A run that is killed (SIGKILL) at any moment and resumed has the bytes of an uninterrupted one.

The moments are random with a fixed seed: a round to wait for and a few milliseconds more. They fall into training, the
log, the temporary file of a checkpoint, between its two files, or its cleanup.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dragfl.cli import main
from tests.conftest import kept_bytes
from tests.runs.processes import AHEAD, LONG, ROUNDS, count_lines, kill_at, started_run, wait_until


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "x.toml").write_text(LONG)
    assert main(["run", str(folder / "x.toml"), "--out", str(folder / "r"), "--quiet"]) == 0
    assert count_lines(folder / "r") == ROUNDS
    return folder / "r"


def kill_and_resume(tmp_path: Path, moments: list[tuple[int, float]]) -> Path:
    """Start, kill, resume, kill, ... and let the last resume finish."""
    (tmp_path / "x.toml").write_text(LONG)
    run = tmp_path / "r"
    for i, (round, delay_s) in enumerate(moments):
        before = count_lines(run)
        kill_at(run, round, delay_s, *(("run", "x.toml", "--out", "r") if i == 0 else ("resume", run)))
        assert not (run / "result.json").exists()
        assert before <= count_lines(run) + 1, "at most the current round is lost"
    assert main(["resume", str(run), "--quiet"]) == 0
    return run


def random_moments(seed: int, count: int, longest_s: float) -> list[tuple[int, float]]:
    draws = np.random.default_rng(seed)
    rounds = np.sort(draws.integers(1, ROUNDS - AHEAD, count))
    return [(int(t), float(draws.uniform(0, longest_s))) for t in rounds]


def test_killed_at_several_moments(tmp_path: Path, uninterrupted: Path) -> None:
    moments = random_moments(seed=20, count=4, longest_s=0.012)
    assert kept_bytes(kill_and_resume(tmp_path, moments)) == kept_bytes(uninterrupted)


def test_killed_before_the_first_round(tmp_path: Path, uninterrupted: Path) -> None:
    """Killed as soon as its directory exists, with or without a spec in it."""
    (tmp_path / "x.toml").write_text(LONG)
    run = tmp_path / "r"
    with started_run("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_until(run.exists)
        process.kill()
        process.wait()
    again = ("resume", run) if (run / "spec.toml").exists() else ("run", tmp_path / "x.toml", "--out", run)
    assert main([*map(str, again), "--quiet"]) == 0
    assert kept_bytes(run) == kept_bytes(uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_many_moments(tmp_path: Path, uninterrupted: Path, seed: int) -> None:
    moments = random_moments(seed, count=8, longest_s=0.02)
    assert kept_bytes(kill_and_resume(tmp_path, moments)) == kept_bytes(uninterrupted)
