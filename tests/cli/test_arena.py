"""`dragfl arena` with two defences, two attacks and three rounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main

SIDES = ("--defences", "fedavg,br_drag", "--attacks", "sign_flip,label_flip")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(
        'name = "small"\nrounds = 3\n[root]\nsize = 20\n[clients]\ntotal = 6\nlocal_steps = 1\n'
        '[model]\nname = "logistic"\n[evaluation]\nevery = 1\n'
    )
    return path


def test_end_to_end(
    toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    words = ["arena", str(toml), *SIDES, "--fractions", "0.34", "--jobs", "1"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert sum(line.startswith("run ") for line in printed.splitlines()) == 9  # 3 x (1 + 2), one line each
    assert "2 of 6 clients attack" in " ".join(printed.split()) and "br_drag †" in printed and "worst" in printed
    assert printed.splitlines()[-1] == "report: arena/small/arena.html"
    page = (tmp_path / "arena" / "small" / "arena.html").read_text()
    assert "Arena on digits" in page and "<dt>defences</dt><dd>3</dd>" in page and "<dt>attacks</dt><dd>2</dd>" in page
    assert main(words) == 0
    assert capsys.readouterr().out.count("already finished") == 9
    assert (tmp_path / "arena" / "small" / "arena.html").read_text() == page


def test_dry_run_lists_the_runs(toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partitions = 'iid,{kind="dirichlet_class",a=0.1}'
    options = ("--partitions", partitions, "--seeds", "0,1", "--out", str(tmp_path / "o"), "--dry-run")
    assert main(["arena", str(toml), *SIDES, *options, "clients.total=12"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 * 2 * 3 * 3
    assert not (tmp_path / "o").exists()


def test_quick_has_a_default_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arena", "--quick", "--dry-run"]) == 0
    runs = capsys.readouterr().out.splitlines()
    assert len(runs) == 12 * 9 and all(run.startswith("arena/digits/runs/") for run in runs)
    assert main(["arena", "rounds=7", "--quick", "--dry-run"]) == 0


def test_json_is_the_manifest_and_nothing_else(
    toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragfl.report.arena.figures.draw_matrix", lambda *_: [])
    out = tmp_path / "o"
    words = ["arena", str(toml), "--defences", "fedavg", "--attacks", "sign_flip", "--out", str(out), "--json"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed == (out / "arena.json").read_text().rstrip("\n") + "\n"
    found = json.loads(printed)
    assert found["numbers"]["runs"] == 2 and found["defences"] == ["fedavg"]
    assert (out / "arena.html").exists()


def test_root_only_can_be_left_out(toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arena", str(toml), *SIDES, "--no-root-only", "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 * 3


def test_a_dry_run_lists_the_candidates_of_a_tuned_attack(toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["arena", str(toml), "--defences", "fedavg", "--attacks", "sign_flip,min_max", "--tune-attacks", "3"]
    assert main([*words, "--dry-run"]) == 0
    *runs, last = capsys.readouterr().out.splitlines()
    assert [Path(run).parent.name for run in runs] == ["tuning"] * 3 + ["runs"] * 2
    assert last == "and 1 final runs with the selected values"
    assert main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": runs, "final_runs": 1}
    assert main([*words[:-1], "1"]) == 2
    assert "at least 2" in capsys.readouterr().err


def test_a_failing_attack_leaves_the_other_cells(
    toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, *_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(dragfl.attacks.Gaussian, "craft", fail)
    monkeypatch.setattr("dragfl.report.arena.figures.draw_matrix", lambda *_: [])
    words = ["arena", str(toml), "--defences", "median", "--attacks", "gaussian,sign_flip"]
    assert main([*words, "--out", str(tmp_path / "o")]) == 1
    seen = capsys.readouterr()
    assert "arena: 1 of 3 runs failed" in seen.err and "RuntimeError: boom (test_arena.py, line" in seen.err
    assert "Traceback" not in seen.err and "failed: RuntimeError" in seen.out and "report: " in seen.out
    assert "boom" in (tmp_path / "o" / "arena.html").read_text()


def test_mistakes(toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arena"]) == 2
    assert "--quick" in capsys.readouterr().err
    assert main(["arena", str(toml), "--defences", "krumm"]) == 2
    assert "did you mean 'krum'?" in capsys.readouterr().err
    assert main(["arena", "nowhere.toml"]) == 2
