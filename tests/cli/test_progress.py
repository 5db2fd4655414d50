"""Plain lines of progress in a pipe: at most one every ten seconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import progress
from dragfl.cli.progress import RunProgress, SweepProgress
from dragfl.runs.sweep_plan import plan_sweep
from dragfl.types import RoundRecord

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """`clock[0]` is the time in seconds."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(progress, "LINE_SECONDS", 10.0)
    return now


def record(number: int, **metrics: float) -> RoundRecord:
    return RoundRecord(number, metrics, {}, {})


def rounds(shown: RunProgress, clock: list[float], numbers: Iterable[int], seconds: float) -> None:
    for number in numbers:
        shown(record(number, accuracy=number / 100))
        clock[0] += seconds


def test_one_line_every_ten_seconds(clock: list[float], capsys: Capture) -> None:
    """A round takes 4 s: round 1 at once, then the first one that is 10 s after the last line: 12 s later."""
    shown = RunProgress()
    shown.begin("mine", 10)
    rounds(shown, clock, range(1, 11), 4.0)
    assert capsys.readouterr().out.splitlines() == [
        "mine: round 1/10  accuracy 0.010  0.0 s",
        "mine: round 4/10  accuracy 0.040  12.0 s",
        "mine: round 7/10  accuracy 0.070  24.0 s",
        "mine: round 10/10  accuracy 0.100  36.0 s",
    ]


def test_several_runs_share_the_ten_seconds(clock: list[float], capsys: Capture) -> None:
    shown = RunProgress()
    for name in "abcd":
        shown.begin(name, 3)
        rounds(shown, clock, range(1, 4), 2.0)
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "a: round 1/3", "b: round 3/3", "d: round 2/3",
    ]  # fmt: skip


def test_a_long_run_of_a_sweep_is_heard_of(tmp_path: Path, clock: list[float], capsys: Capture) -> None:
    planned = plan_sweep({"rounds": 50}, {"seed": [0, 1]}, tmp_path)
    shown = SweepProgress(planned, 1)
    shown.begin(planned[0], 0)
    for number in range(1, 7):
        clock[0] += 4.0
        shown.record(record(number))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(line.startswith("2 runs  0 finished  about ") for line in lines)
    assert all(line.endswith("left  seed0") for line in lines)


def test_quiet(clock: list[float], capsys: Capture) -> None:
    shown = RunProgress(quiet=True)
    shown.begin("mine", 3)
    rounds(shown, clock, range(1, 4), 20.0)
    assert capsys.readouterr().out == ""


def test_a_batch_that_is_larger_than_the_data_of_a_client(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """1,438 samples: 14 or 15 for each of 100 clients."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(
        'rounds = 1\n[clients]\ntotal = 100\nper_round = 2\nbatch_size = 15\n[model]\nname = "logistic"\n'
    )
    assert dragfl.cli.main(["run", "small.toml"]) == 0
    words = "clients.batch_size: 15 is larger than the data of 62 of 100 clients (the smallest has 14); "
    assert f"warning: {words}their minibatches repeat samples; lower it" in capsys.readouterr().err
    assert dragfl.cli.main(["run", "small.toml", "clients.sampling=epoch"]) == 0
    assert f"warning: {words}their minibatches are all of their samples" in capsys.readouterr().err
    assert dragfl.cli.main(["run", "small.toml", "clients.batch_size=14"]) == 0
    assert capsys.readouterr().err == ""
