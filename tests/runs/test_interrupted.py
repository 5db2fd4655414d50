"""A run that is interrupted by Ctrl-C, SIGTERM or SIGHUP, once or twice; and a second process in its directory."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from dragfl.cli import main
from dragfl.runs.lock import lock_folder
from tests.conftest import TIMEOUT_S, kept_bytes, shell
from tests.runs.processes import LONG, count_lines, started_run, wait_for_round, wait_until

NO_CHECKPOINTS = LONG.replace("every = 1", "every = 1000")  # except the one that an interrupt asks for
ENDLESS_ROUND = NO_CHECKPOINTS.replace("local_steps = 2", "local_steps = 400000")  # minutes on an idle machine


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "x.toml").write_text(NO_CHECKPOINTS)
    assert main(["run", str(folder / "x.toml"), "--out", str(folder / "r"), "--quiet"]) == 0
    return folder / "r"


def resumed_bytes(run: Path) -> dict[str, bytes]:
    assert main(["resume", str(run), "--quiet"]) == 0
    return kept_bytes(run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_ends_the_round_and_writes_a_checkpoint(
    tmp_path: Path, uninterrupted: Path, number: signal.Signals
) -> None:
    (tmp_path / "x.toml").write_text(NO_CHECKPOINTS)
    run = tmp_path / "r"
    with started_run("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 20)
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5, err
    assert "Ctrl-C again stops immediately" in err
    found = re.search(r"dragfl: stopped after round (\d+); continue with: dragfl resume (\S+)", err)
    assert found
    assert int(found[1]) == count_lines(run) >= 20, "the last round is complete and logged"
    assert (run / "checkpoint.json").exists()
    assert not (run / "result.json").exists()
    assert resumed_bytes(tmp_path / found[2]) == kept_bytes(uninterrupted)


def test_second_signal_stops_inside_the_round(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(ENDLESS_ROUND)
    run = tmp_path / "r"
    with started_run("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_until((run / "metrics.jsonl").exists)  # opened when the first round starts
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Ctrl-C again" not in (line := process.stderr.readline()):
            assert line, "the process ended without a message"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=TIMEOUT_S)
    assert process.returncode == 5
    assert count_lines(run) == 0, "the first round did not end"
    assert not (run / "checkpoint.json").exists()


def test_a_run_stopped_inside_a_round_is_resumable(tmp_path: Path, uninterrupted: Path) -> None:
    (tmp_path / "x.toml").write_text(LONG)
    run = tmp_path / "r"
    with started_run("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 20)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5, err
    assert resumed_bytes(run) == kept_bytes(uninterrupted), "checkpoint.every does not change the result"


def test_a_second_process_learns_which_process_holds_the_run(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(NO_CHECKPOINTS)
    run = tmp_path / "r"
    with started_run("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 5)
        answer = shell("resume", run, cwd=tmp_path)  # meanwhile the first process waits for its full pipe
        assert answer.returncode == 2
        assert f"in use by process {process.pid} on " in answer.stderr
        assert "wait for it to end or stop it first" in answer.stderr
        process.kill()
    assert main(["resume", str(run), "--quiet"]) == 0, "the lock ended with its process"


def test_a_locked_folder_is_not_run_into(digits_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "r"
    run.mkdir()
    with lock_folder(run):
        assert main(["run", str(digits_toml), "--out", str(run)]) == 2
    assert "in use by process" in capsys.readouterr().err
    assert [p.name for p in run.iterdir()] == ["lock"]
