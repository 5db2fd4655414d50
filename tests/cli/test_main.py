"""Exit codes, closed pipes and the short commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main
from dragfl.cli.list_parts import KINDS
from dragfl.cli.parts_table import list_rows
from tests.conftest import TIMEOUT_S, shell

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


class TestExitCodes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere.toml"], "nowhere.toml: no such file"),
            (["small.toml", "clients.lr=-1"], "override 'clients.lr=-1': clients.lr: -1.0 is outside"),
            (["small.toml", "clientss.lr=1"], "did you mean 'clients'?"),
            (["small.toml", "rounds"], "write it as key=value"),
            (["small.toml", "algorithm.name=br_drag"], "needs trusted root data"),
            (["small.toml", "--out", "small.toml"], "exists and is not a run directory"),
        ],
    )
    def test_2_spec(self, digits_toml: Path, capsys: Capture, arguments: list[str], message: str) -> None:
        assert main(["run", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("dragfl: ")
        assert err.count("\n") == 1
        assert message in err

    @pytest.mark.parametrize("arguments", [[], ["runn"], ["run"], ["run", "x.toml", "--nope"], ["list", "atacks"]])
    def test_2_usage(self, arguments: list[str], capsys: Capture) -> None:
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and err.startswith("dragfl: ")
        assert re.search(r"; see `dragfl( run| list)? --help`$", err.rstrip())

    def test_3_data(self, digits_toml: Path, capsys: Capture) -> None:
        assert main(["run", "small.toml", "clients.total=5000", "clients.per_round=5"]) == 3
        assert "samples are too few for 5000 clients" in capsys.readouterr().err
        assert not Path("runs").exists()

    def test_4_diverged(self, digits_toml: Path, capsys: Capture) -> None:
        assert main(["run", "small.toml", "clients.lr=1e6", "algorithm.server.lr=1e6", "--quiet"]) == 4
        first = capsys.readouterr().err
        assert first.startswith("dragfl: diverged in round 1: ")
        assert main(["resume", "runs/small"]) == 4
        assert "diverged in round 1: " in capsys.readouterr().out

    def test_5_interrupted(self, digits_toml: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        """The message contains the command that resumes the run."""
        import contextlib

        from dragfl.cli import interrupt

        asked = iter([False, False, True])
        with monkeypatch.context() as patch:
            patch.setattr(interrupt, "catch_interrupts", lambda: contextlib.nullcontext(lambda: next(asked)))
            assert main(["run", "small.toml", "--quiet"]) == 5
        message = capsys.readouterr().err
        assert message == "dragfl: stopped after round 3; continue with: dragfl resume runs/small\n"
        assert main([*message.split("continue with: dragfl ")[1].split(), "--json"]) == 0
        rounds = [json.loads(line).get("round") for line in capsys.readouterr().out.splitlines()]
        assert rounds == [*range(4, 13), None]

    def test_6_damaged(self, capsys: Capture, tmp_path: Path) -> None:
        assert main(["resume", "nowhere"]) == 6
        assert "nowhere: not a run directory" in capsys.readouterr().err


def test_the_console_script(digits_toml: Path, tmp_path: Path) -> None:
    """The installed `dragfl` script."""
    script = Path(sys.executable).with_name("dragfl")
    done = subprocess.run(
        [script, "run", "small.toml", "rounds=2"], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "run directory: runs/small"


def test_a_closed_pipe_prints_no_traceback(tmp_path: Path) -> None:
    pipe = subprocess.run(
        f"{sys.executable} -m dragfl list | head -1", shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert "Traceback" not in pipe.stderr
    assert "Exception ignored" not in pipe.stderr


class TestList:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind: str, capsys: Capture) -> None:
        assert main(["list", kind]) == 0
        printed = capsys.readouterr().out
        assert kind in printed
        assert list_rows(kind)
        for name, _, _ in list_rows(kind):
            assert name in printed

    def test_all(self, capsys: Capture) -> None:
        assert main(["list"]) == 0
        printed = capsys.readouterr().out
        assert all(kind in printed for kind in KINDS)

    def test_settings_and_their_defaults(self) -> None:
        settings = {name: shown for name, _, shown in list_rows("algorithms")}
        assert "c (0.25)" in settings["drag"]
        assert "alpha (1.0)" in settings["drag"]
        assert "server_lr (1.0)" in settings["fedavg"]


def test_doctor(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert f"dragfl {dragfl.__version__}" in printed
    assert "three rounds of DRAG on digits: accuracy 0." in printed
    assert all(f"\n{extra} " in printed for extra in ("scikit-learn", "ray", "tensorboard", "mlflow", "wandb"))
    assert printed.endswith("OK\n")


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"dragfl {dragfl.__version__}\n"


def test_report_of_a_run(digits_toml: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})  # tests/report draws them
    main(["run", "small.toml", "--quiet"])
    assert main(["report", "runs", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "report: out/report.html"
    assert Path("out/report.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_piped_output_of_a_process_is_plain(digits_toml: Path, tmp_path: Path) -> None:
    done = shell("run", "small.toml", "rounds=3", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("small: round 3/3  accuracy ")


def test_exit_codes_of_a_closed_pipe(tmp_path: Path) -> None:
    """`dragfl list | head -1` succeeds; a run whose output pipe was closed is unfinished, exit code 5."""
    (tmp_path / "small.toml").write_text('rounds = 400\n[model]\nname = "logistic"\n[evaluation]\nevery = 1\n')
    for words, code in ((["list"], 0), (["run", "small.toml", "--json"], 5)):
        child = subprocess.Popen(
            [sys.executable, "-m", "dragfl", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(TIMEOUT_S) == code, words
