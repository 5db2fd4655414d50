"""`dragfl run`: what it prints and writes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_run(digits_toml: Path, capsys: Capture) -> None:
    assert main(["run", "small.toml"]) == 0
    printed = capsys.readouterr().out.splitlines()
    run = dragfl.load_run("runs/small")
    assert run.result is not None
    assert printed[-1] == "run directory: runs/small"
    assert printed[-2] == f"12 rounds, accuracy {run.result['accuracy']:.4f} (best {run.result['best_accuracy']:.4f})"
    assert printed[0].startswith("small: round 1/12  divergence 0.")
    assert "\x1b" not in "".join(printed), "a pipe gets plain lines"


def test_a_finished_run_is_not_repeated(digits_toml: Path, capsys: Capture) -> None:
    main(["run", "small.toml", "--quiet"])
    assert capsys.readouterr().out == ""
    assert main(["run", "small.toml"]) == 0
    assert capsys.readouterr().out.startswith("already finished, nothing to run\n12 rounds")
    assert main(["resume", "runs/small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["already_done"] is True


def test_the_spec_of_a_run_repeats_it(digits_toml: Path, capsys: Capture) -> None:
    main(["run", "small.toml", "--quiet"])
    assert main(["run", "runs/small/spec.toml", "--out", "again", "--quiet"]) == 0
    assert dragfl.load_run("again").metrics == dragfl.load_run("runs/small").metrics


def test_a_composition_of_parts(digits_toml: Path, capsys: Capture) -> None:
    code = main(["run", "small.toml", "algorithm.aggregate=drag", "algorithm.server=momentum", "rounds=2"])
    assert code == 0
    run = dragfl.load_run("runs/small")
    assert run.spec["algorithm"]["name"] == "drag+momentum"
    assert run.spec["algorithm"]["server"]["beta"] == 0.9


def test_target(digits_toml: Path, capsys: Capture) -> None:
    main(["run", "small.toml", "target_accuracy=0.2", "name=easy"])
    run = dragfl.load_run("runs/easy")
    assert f"target 0.2 first reached in round {run.rounds_to(0.2)}" in capsys.readouterr().out
    main(["run", "small.toml", "target_accuracy=1.0", "name=hard", "rounds=2"])
    assert "target 1 not reached in 2 rounds" in capsys.readouterr().out


def test_a_robust_rule_under_attack_begins_with_its_f(digits_toml: Path, capsys: Capture) -> None:
    """6 clients, 2 of them malicious, 5 sampled: C(4, 3) of C(6, 5) cohorts have both, 4 / 6; Krum admits f = 1."""
    words = ["clients.total=6", "clients.per_round=5", "attack.name=sign_flip", "attack.attackers=2", "rounds=1"]
    command = ["run", "small.toml", "algorithm.name=krum", *words]
    line = "krum: f = 1; a cohort has more than 1 attackers in 66.7 % of rounds"
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[0] == line
    assert dragfl.load_run("runs/small").spec["attack"]["exceeds_f"] == 0.667
    main(command)
    assert line not in capsys.readouterr().out  # nothing runs
    main([*command, "name=quiet", "--quiet"])
    assert capsys.readouterr().out == ""
    main([*command, "name=plain", "algorithm.name=fedavg"])
    assert "f =" not in capsys.readouterr().out


def test_dry_run(digits_toml: Path, capsys: Capture) -> None:
    assert main(["run", "small.toml", "algorithm.name=fltrust", "root.size=9", "--dry-run"]) == 0
    tables = tomllib.loads(capsys.readouterr().out)
    assert tables == dragfl.load("small.toml", "algorithm.name=fltrust", "root.size=9").tables()
    assert not Path("runs").exists()


def test_json(digits_toml: Path, capsys: Capture) -> None:
    assert main(["run", "small.toml", "rounds=3", "--json"]) == 0
    *rounds, result = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [{k: v for k, v in row.items() if k != "run"} for row in rounds] == dragfl.load_run("runs/small").metrics
    assert {row["run"] for row in rounds} == {"small"}
    assert result["path"] == "runs/small"
    assert result["already_done"] is False
    assert result["stopped_by"] == "rounds"


def test_json_of_a_run_that_diverges_ends_with_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wild.toml").write_text('rounds = 50\n[clients]\nlr = 100000.0\n[model]\nname = "mlp"\nhidden = 8\n')
    assert main(["run", "wild.toml", "--json"]) == 4
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["stopped_by"] == "diverged"
