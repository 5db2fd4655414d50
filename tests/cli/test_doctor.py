"""`dragfl doctor --deep`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragfl import health
from dragfl.cli import main
from dragfl.health import Check
from tests.conftest import TIMEOUT_S

Capture = pytest.CaptureFixture[str]


def test_a_real_check(digits_toml: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 kernels work wherever the tests run; what the machine lacks otherwise is not an error of dragfl.

    The logs of 10^9 rounds are more than any disk of a test: the need is that of the given experiment.
    """
    monkeypatch.setattr(health, "CHECK_SECONDS", TIMEOUT_S)
    digits_toml.write_text(digits_toml.read_text().replace("rounds = 12", "rounds = 1_000_000_000"))
    assert main(["doctor", str(digits_toml), "--deep", "--out", str(tmp_path / "runs")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "OK: float32 matmul: runs" in lines
    assert any(": memory: " in line and "the run needs about" in line for line in lines)
    assert any(": file lock: " in line and str(tmp_path) in line for line in lines)
    assert any(line.startswith("failed: disk space of runs: ") for line in lines)
    assert lines[-1].endswith(" failed")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("status", "code"), [("OK", 0), ("warning", 0), ("failed", 1)])
def test_exit_code(status: health.Status, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(health, "check_machine", lambda *_: [Check("thing", status, "text")])
    assert main(["doctor", "--deep"]) == code
    assert f"{status}: thing: text" in capsys.readouterr().out


def test_wrong_spec(tmp_path: Path, capsys: Capture) -> None:
    assert main(["doctor", "--deep", str(tmp_path / "nowhere.toml")]) == 2
    assert "nowhere.toml" in capsys.readouterr().err


def test_an_experiment_needs_deep(capsys: Capture) -> None:
    assert main(["doctor", "x.toml"]) == 2
    assert "add --deep" in capsys.readouterr().err
