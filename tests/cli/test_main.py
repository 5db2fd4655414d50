"""Exit codes, closed pipes and the short commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import doctor, main
from dragfl.cli.doctor import packages_by_extra
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

    @pytest.mark.parametrize("arguments", [["nothing"], ["run"], ["run", "x.toml", "--nope"], ["list", "-x"]])
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


@pytest.mark.parametrize("words", [[], ["-h"]])
def test_bare_dragfl_prints_the_help(words: list[str], tmp_path: Path) -> None:
    """Also as `python -m dragfl`."""
    done = shell(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: dragfl ")
    assert all(f"\n    {command} " in done.stdout for command in ("demo", "init", "run", "report", "completion"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["swep"], "unknown command 'swep'; did you mean 'sweep'?"),
        (["data", "gett"], "data: unknown action 'gett'; did you mean 'get'?"),
        (["run", "x.toml", "--dryrun"], "run: unrecognized arguments: --dryrun; did you mean '--dry-run'?"),
        (["sweep", "x.toml", "--job=2"], "sweep: no key=a,b"),  # a prefix of --jobs is accepted
        (["data", "show", "digits", "--partitoin=iid"], "did you mean '--partition'?"),
        (["check", "--as", "agregate", "m:x"], "check: kind: unknown 'agregate'; did you mean 'aggregate'?"),
        (["list", "fedavgg"], "list: unknown name 'fedavgg'; did you mean 'fedavg'?"),
    ],
)
def test_did_you_mean(words: list[str], message: str, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("")
    assert main(words) == 2
    assert message in capsys.readouterr().err


class TestSystemErrors:
    @pytest.mark.parametrize("out", ["small.toml/x", "a" * 300])
    @pytest.mark.parametrize(
        "words", [["run", "small.toml"], ["sweep", "small.toml", "seed=0"], ["report", "done", "--csv"]]
    )
    def test_a_folder_that_cannot_be_written(
        self, digits_toml: Path, capsys: Capture, words: list[str], out: str
    ) -> None:
        if words[0] == "report":
            main(["run", "small.toml", "rounds=1", "--out", "done", "--quiet"])
        assert main([*words, "--out", out]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"dragfl: {out[:100]}") and err.count("\n") == 1 and "Traceback" not in err

    @pytest.mark.parametrize(
        ("word", "message"),
        [
            (
                "clients.batch_size=10000000000000000000000",
                "clients.batch_size: 10000000000000000000000 is above 10000",
            ),
            ("clients.local_steps=2000000000", "clients.local_steps: 2000000000 is above 1000000000"),
            ("clients.local_steps=[1, 2000000000]", "clients.local_steps: 2000000000 is above 1000000000"),
        ],
    )
    def test_impossible_sizes(self, digits_toml: Path, capsys: Capture, word: str, message: str) -> None:
        assert main(["run", "small.toml", word]) == 2
        assert message in capsys.readouterr().err
        assert not Path("runs").exists()

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (MemoryError("Unable to allocate 3.64 TiB"), "not enough memory (Unable to allocate 3.64 TiB); lower"),
            (
                RuntimeError(
                    "[enforce] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. Error code 12"
                ),
                "not enough memory (can't allocate memory: you tried to allocate 9 bytes.); lower",
            ),
        ],
    )
    def test_no_memory(
        self, digits_toml: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("dragfl.run", fail)
        assert main(["run", "small.toml"]) == 2
        assert capsys.readouterr().err.startswith(f"dragfl: {message}")

    def test_other_errors_keep_their_traceback(self, digits_toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a mistake in dragfl")

        monkeypatch.setattr("dragfl.run", fail)
        with pytest.raises(RuntimeError, match="a mistake in dragfl"):
            main(["run", "small.toml"])


def test_doctor_knows_every_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    lines = [f'{line}; extra == "{extra}"' for extra, found in extras.items() for line in found]
    known = packages_by_extra([*project["dependencies"], *lines])
    assert known.keys() == {"", *extras}
    assert "torch" in known[""] and known["report"] == ["matplotlib", "jinja2"] and known["flower"] == ["flwr"]
    assert "dragfl" not in known["dev"]


def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", {"here": "1.2"}.get)
    assert doctor.describe_packages("more", ["here"]) == "more: here 1.2"
    missing = "more: here 1.2, gone not installed (optional: pip install 'dragfl[more]')"
    assert doctor.describe_packages("more", ["here", "gone"]) == missing


def test_doctor(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert f"dragfl {dragfl.__version__}" in printed
    assert "three rounds of DRAG on digits: accuracy 0." in printed
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
    assert done.stdout.startswith("small: round 1/3  ")


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
