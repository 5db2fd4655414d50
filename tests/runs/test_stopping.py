"""Ctrl-C once, twice, SIGTERM; and a second process at the same run."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from dragfl.cli import main
from dragfl.runs.lock import lock_folder
from tests.conftest import kept_bytes, shell
from tests.runs.processes import LONG, lines, started, wait_for_round

SOMETIMES = LONG.replace("every = 1", "every = 1000")  # no checkpoint but the one that is asked for


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "x.toml").write_text(SOMETIMES)
    done = shell("run", "x.toml", "--out", "r", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "r"


def finished(run: Path) -> dict[str, bytes]:
    done = shell("resume", run, "--quiet", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    return kept_bytes(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_once_it_ends_the_round_and_checkpoints(tmp_path: Path, whole: Path, number: signal.Signals) -> None:
    (tmp_path / "x.toml").write_text(SOMETIMES)
    run = tmp_path / "r"
    with started("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 20)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 5, said
    assert "ending the round and writing a checkpoint; Ctrl-C again stops immediately" in said
    found = re.search(r"dragfl: stopped after round (\d+); continue with: dragfl resume (\S+)", said)
    assert found
    assert int(found[1]) == lines(run) >= 20, "the last round is whole and in the log"
    assert (run / "checkpoint.json").exists()
    assert not (run / "result.json").exists()
    assert finished(tmp_path / found[2]) == kept_bytes(whole)


def test_asked_twice_it_stops_at_once(tmp_path: Path, whole: Path) -> None:
    """A round here takes a second, so a stop within less is a stop in the middle of it."""
    slow = SOMETIMES.replace("local_steps = 2", "local_steps = 2500")
    (tmp_path / "slow.toml").write_text(slow)
    with started("run", "slow.toml", "--out", "s", cwd=tmp_path) as process:
        wait_for_round(process, tmp_path / "s", 1)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Ctrl-C again" not in process.stderr.readline():
            pass
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert time.monotonic() - asked < 1.0
    assert process.returncode == 5
    assert not (tmp_path / "s" / "checkpoint.json").exists(), "stopped at once, so there is no checkpoint"


def test_stopped_at_once_it_is_resumable(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "x.toml").write_text(LONG)
    run = tmp_path / "r"
    with started("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 20)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 5, said
    assert finished(run) == kept_bytes(whole), "how often it checkpoints is nothing a result depends on"


def test_a_second_process_is_told_who_holds_the_run(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SOMETIMES)
    run = tmp_path / "r"
    with started("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 5)
        process.send_signal(signal.SIGSTOP)
        try:
            answer = shell("resume", run, cwd=tmp_path)
            assert answer.returncode == 2
            assert f"in use by process {process.pid} on " in answer.stderr
            assert "wait for it to end or stop it first" in answer.stderr
        finally:
            process.send_signal(signal.SIGCONT)
        process.kill()
    assert shell("resume", run, "--quiet", cwd=tmp_path).returncode == 0, "the lock died with its holder"


def test_the_lock_is_given_back(tmp_path: Path) -> None:
    from dragfl.errors import SpecError

    with lock_folder(tmp_path), pytest.raises(SpecError, match="in use by process"), lock_folder(tmp_path):
        pass
    with lock_folder(tmp_path):
        pass


def test_a_run_that_is_being_made_is_not_made_twice(
    digits_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two `dragfl run` on one place: the later one waits for nobody and changes nothing."""
    run = tmp_path / "r"
    run.mkdir()
    with lock_folder(run):
        assert main(["run", str(digits_toml), "--out", str(run)]) == 2
    assert "in use by process" in capsys.readouterr().err
    assert [p.name for p in run.iterdir()] == ["lock"]
