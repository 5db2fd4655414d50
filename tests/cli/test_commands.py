"""The commands as a user types them: what they print, what they leave and the code they end with."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main
from dragfl.cli.list_parts import KINDS, rows
from tests.conftest import shell

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


class TestRun:
    def test_done(self, digits_toml: Path, capsys: Capture) -> None:
        assert main(["run", "small.toml"]) == 0
        said = capsys.readouterr().out.splitlines()
        run = dragfl.load_run("runs/small")
        assert run.result is not None
        assert said[-1] == "run directory: runs/small"
        assert said[-2] == f"12 rounds, accuracy {run.result['accuracy']:.4f} (best {run.result['best_accuracy']:.4f})"
        assert [line.split("  ")[0] for line in said[:-2]] == [f"small: round {t}/12" for t in (3, 6, 9, 12)]
        assert "divergence 0." in said[0]
        assert "\x1b" not in "".join(said), "a pipe gets plain lines"

    def test_again_is_already_done(self, digits_toml: Path, capsys: Capture) -> None:
        main(["run", "small.toml", "--quiet"])
        assert capsys.readouterr().out == ""
        assert main(["run", "small.toml"]) == 0
        assert capsys.readouterr().out.startswith("already finished, nothing to run\n12 rounds")
        assert main(["resume", "runs/small", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["already_done"] is True

    def test_the_spec_of_a_run_repeats_it(self, digits_toml: Path, capsys: Capture) -> None:
        main(["run", "small.toml", "--quiet"])
        assert main(["run", "runs/small/spec.toml", "--out", "again", "--quiet"]) == 0
        assert dragfl.load_run("again").metrics == dragfl.load_run("runs/small").metrics

    def test_a_composition_no_preset_names(self, digits_toml: Path, capsys: Capture) -> None:
        code = main(["run", "small.toml", "algorithm.aggregate=drag", "algorithm.server=momentum", "rounds=2"])
        assert code == 0
        run = dragfl.load_run("runs/small")
        assert run.spec["algorithm"]["name"] == "drag+momentum"
        assert run.spec["algorithm"]["server"]["beta"] == 0.9

    def test_target(self, digits_toml: Path, capsys: Capture) -> None:
        main(["run", "small.toml", "target_accuracy=0.2", "name=easy"])
        run = dragfl.load_run("runs/easy")
        assert f"target 0.2 first reached in round {run.rounds_to(0.2)}" in capsys.readouterr().out
        main(["run", "small.toml", "target_accuracy=1.0", "name=hard", "rounds=2"])
        assert "target 1 not reached (> 2 rounds)" in capsys.readouterr().out

    def test_dry_run(self, digits_toml: Path, capsys: Capture) -> None:
        assert main(["run", "small.toml", "algorithm.name=fltrust", "root.size=9", "--dry-run"]) == 0
        tables = tomllib.loads(capsys.readouterr().out)
        assert tables == dragfl.load("small.toml", "algorithm.name=fltrust", "root.size=9").tables()
        assert not Path("runs").exists()

    def test_json(self, digits_toml: Path, capsys: Capture) -> None:
        assert main(["run", "small.toml", "rounds=3", "--json"]) == 0
        *rounds, result = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [{k: v for k, v in row.items() if k != "run"} for row in rounds] == dragfl.load_run("runs/small").metrics
        assert {row["run"] for row in rounds} == {"small"}
        assert result["path"] == "runs/small"
        assert result["already_done"] is False
        assert result["stopped_by"] == "rounds"


class TestExitCodes:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["nowhere.toml"], "nowhere.toml: no such file"),
            (["small.toml", "clients.lr=-1"], "lr=-1.0 is outside"),
            (["small.toml", "clientss.lr=1"], "did you mean 'clients'?"),
            (["small.toml", "rounds"], "write it as key=value"),
            (["small.toml", "algorithm.name=br_drag"], "needs trusted root data"),
            (["small.toml", "--out", "small.toml"], "exists and is not a run directory"),
        ],
    )
    def test_2_spec(self, digits_toml: Path, capsys: Capture, arguments: list[str], said: str) -> None:
        assert main(["run", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("dragfl: ")
        assert err.count("\n") == 1
        assert said in err

    @pytest.mark.parametrize("arguments", [[], ["runn"], ["run"], ["run", "x.toml", "--nope"], ["list", "atacks"]])
    def test_2_usage(self, arguments: list[str], capsys: Capture) -> None:
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2
        assert "usage: dragfl" in capsys.readouterr().err

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

    def test_5_interrupted_says_how_to_go_on(
        self, digits_toml: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command it names is the command that works."""
        import contextlib

        import dragfl.cli.interrupt as stopping

        asked = iter([False, False, True])
        polite = stopping.catch_interrupts
        monkeypatch.setattr(stopping, "catch_interrupts", lambda: contextlib.nullcontext(lambda: next(asked)))
        assert main(["run", "small.toml", "--quiet"]) == 5
        monkeypatch.setattr(stopping, "catch_interrupts", polite)
        message = capsys.readouterr().err
        assert message == "dragfl: stopped after round 3; continue with: dragfl resume runs/small\n"
        assert main([*message.split("continue with: dragfl ")[1].split(), "--json"]) == 0
        rounds = [json.loads(line).get("round") for line in capsys.readouterr().out.splitlines()]
        assert rounds == [*range(4, 13), None]

    def test_6_damaged(self, capsys: Capture, tmp_path: Path) -> None:
        assert main(["resume", "nowhere"]) == 6
        assert "nowhere: not a run directory" in capsys.readouterr().err


def test_the_console_script(digits_toml: Path, tmp_path: Path) -> None:
    """Once as it is typed: installed beside this interpreter."""
    script = Path(sys.executable).with_name("dragfl")
    done = subprocess.run(
        [script, "run", "small.toml", "rounds=2"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "run directory: runs/small"


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    pipe = subprocess.run(
        f"{sys.executable} -m dragfl list | head -1", shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert "Traceback" not in pipe.stderr
    assert "Exception ignored" not in pipe.stderr


class TestList:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind: str, capsys: Capture) -> None:
        assert main(["list", kind]) == 0
        said = capsys.readouterr().out
        assert kind in said
        assert rows(kind)
        for name, _, _ in rows(kind):
            assert name in said

    def test_all(self, capsys: Capture) -> None:
        assert main(["list"]) == 0
        said = capsys.readouterr().out
        assert all(kind in said for kind in KINDS)

    def test_settings_are_the_parts_own(self) -> None:
        settings = {name: shown for name, _, shown in rows("algorithms")}
        assert "c (0.25)" in settings["drag"]
        assert "alpha (1.0)" in settings["drag"]
        assert "server_lr (1.0)" in settings["fedavg"]


def test_doctor(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert f"dragfl {dragfl.__version__}" in said
    assert "three rounds of DRAG on digits: accuracy 0." in said
    assert said.endswith("OK\n")


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"dragfl {dragfl.__version__}\n"


def test_report_of_a_run(digits_toml: Path, capsys: Capture) -> None:
    pytest.importorskip("matplotlib")
    main(["run", "small.toml", "--quiet"])
    assert main(["report", "runs", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "report: out/report.html"
    assert Path("out/report.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_piped_output_of_a_process_is_plain(digits_toml: Path, tmp_path: Path) -> None:
    done = shell("run", "small.toml", "rounds=3", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("small: round 3/3  accuracy ")


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    """`dragfl list | head -1` is done; a run whose reader has gone is unfinished, exit code 5."""
    (tmp_path / "small.toml").write_text('rounds = 400\n[model]\nname = "logistic"\n[evaluation]\nevery = 1\n')
    for words, code in ((["list"], 0), (["run", "small.toml", "--json"], 5)):
        child = subprocess.Popen(
            [sys.executable, "-m", "dragfl", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(60) == code, words


def test_json_of_a_run_that_diverges_ends_with_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wild.toml").write_text('rounds = 50\n[clients]\nlr = 100000.0\n[model]\nname = "mlp"\nhidden = 8\n')
    assert main(["run", "wild.toml", "--json"]) == 4
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["stopped_by"] == "diverged"
