"""Running an attack matrix: interrupted, continued, extended."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.attacks import ATTACKS
from dragfl.errors import Interrupted, PartError, RunsFailed
from dragfl.report.arena.results import MANIFEST
from dragfl.runs import sweep
from dragfl.runs.sweep import Callbacks
from dragfl.types import NoState, RoundContext, Updates, View, no_state
from tests.conftest import kept_bytes


def test_an_interrupted_arena_continues_to_the_same_bytes(tables: dict[str, Any], tmp_path: Path) -> None:
    sides = (["fedavg", "br_drag"], ["sign_flip", "random_scaling"])
    whole = dragfl.arena(tables, *sides, out=tmp_path / "whole")
    seen = 0

    def stop_once() -> bool:
        nonlocal seen
        seen += 1
        return seen in (2, 9)

    for _ in range(2):
        with pytest.raises(Interrupted, match=r"arena stopped .* same command"):
            dragfl.arena(tables, *sides, out=tmp_path / "cut", callbacks=Callbacks(should_stop=stop_once))
    ended: list[bool] = []
    callbacks = Callbacks(on_end=lambda run, already: ended.append(already))
    cut = dragfl.arena(tables, *sides, out=tmp_path / "cut", callbacks=callbacks)
    assert True in ended and False in ended
    assert [run.name for run in cut] == [run.name for run in whole]
    assert [kept_bytes(run.path) for run in cut] == [kept_bytes(run.path) for run in whole]
    tables_of = [json.loads((tmp_path / folder / MANIFEST).read_text()) for folder in ("cut", "whole")]
    assert all(table["numbers"].pop("seconds_per_round") for table in tables_of)
    assert tables_of[0] == tables_of[1]


def test_a_later_call_may_add_attacks(tables: dict[str, Any], tmp_path: Path) -> None:
    dragfl.arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path)
    ended: list[bool] = []
    callbacks = Callbacks(on_end=lambda run, already: ended.append(already))
    dragfl.arena(tables, ["fedavg"], ["sign_flip", "random_scaling"], out=tmp_path, callbacks=callbacks)
    assert ended == [True, True, False]
    assert json.loads((tmp_path / MANIFEST).read_text())["attacks"] == ["sign_flip", "random_scaling"]


@dataclass(frozen=True)
class Raises:
    """An attack with a bug."""

    knowledge = "own"
    init = no_state

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        raise ZeroDivisionError("boom")


class TestFailures:
    def test_a_run_that_raises_does_not_lose_the_others(
        self, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(ATTACKS, "buggy", Raises)
        seen: list[str] = []
        callbacks = Callbacks(on_failure=lambda planned, reason: seen.append(planned.name))
        with pytest.raises(RunsFailed, match=r"arena: 2 of 6 runs failed, the others have finished") as error:
            dragfl.arena(tables, ["fedavg", "median"], ["buggy", "sign_flip"], out=tmp_path, callbacks=callbacks)
        assert error.value.exit_code == PartError.exit_code and seen == list(error.value.failures) and len(seen) == 2
        stored = json.loads((tmp_path / MANIFEST).read_text())
        failed = {(c["defence"], c["attack"]): c["failed"] for c in stored["cells"] if "failed" in c}
        assert failed.keys() == {("fedavg", "buggy"), ("median", "buggy")}
        assert all(re.search(r"Raises\.craft raised ZeroDivisionError: boom \(test_arena", t) for t in failed.values())
        (matrix,) = stored["numbers"]["matrices"]
        rows = {(d["defence"], a["attack"]): a for d in matrix["defences"] for a in d["attacks"]}
        assert rows["fedavg", "buggy"]["failed"][0]["reason"] == failed["fedavg", "buggy"]
        assert rows["fedavg", "buggy"]["accuracy"] is None and rows["fedavg", "sign_flip"]["accuracy"] is not None

    def test_the_same_call_tries_a_failed_cell_again(
        self, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(ATTACKS, "buggy", Raises)
        with pytest.raises(RunsFailed):
            dragfl.arena(tables, ["fedavg"], ["buggy"], out=tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(Raises, "craft", lambda self, state, view, context: (view.own, state))
            dragfl.arena(tables, ["fedavg"], ["buggy"], out=tmp_path)
        stored = json.loads((tmp_path / MANIFEST).read_text())
        assert not any("failed" in cell for cell in stored["cells"])

    def test_a_sweep_finishes_its_other_runs_too(
        self, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(ATTACKS, "buggy", Raises)
        with pytest.raises(RunsFailed, match=r"sweep: 1 of 2 runs failed(.|\n)*buggy: .*ZeroDivisionError: boom"):
            dragfl.sweep(tables, {"attack.name": ["buggy", "alie"]}, tmp_path)
        assert dragfl.load_run(tmp_path / "alie").finished


class TestNumbers:
    def test_after_the_runs_arena_json_has_the_numbers(self, tables: dict[str, Any], tmp_path: Path) -> None:
        runs = dragfl.arena(tables, ["fltrust", "fedavg"], ["sign_flip"], out=tmp_path, seeds=[0, 1])
        stored = json.loads((tmp_path / MANIFEST).read_text())
        assert stored["numbers"] == dragfl.report.arena_numbers(tmp_path)
        assert stored["tuning"] is None and stored["overlapped"] == []
        assert stored["numbers"]["runs"] == len(runs) == 2 * 3 * 2  # with root_only
        (matrix,) = stored["numbers"]["matrices"]
        best = max(d["worst_case"]["accuracy"] for d in matrix["defences"] if d["defence"] == "fltrust")
        control = next(d for d in matrix["defences"] if d["defence"] == "root_only")
        assert matrix["clients_add"]["difference"] == best - control["worst_case"]["accuracy"]
        assert len({a["accuracy"]["mean"] for a in control["attacks"]}) == 1, "no attack changes root_only"
        fltrust = next(d for d in matrix["defences"] if d["defence"] == "fltrust")
        assert fltrust["attacks"][1]["detection"]["flagged_by"] == "trust"
        assert sum(fltrust["attacks"][1]["detection"]["clients"]["attacked"]) == 2 * 3 * 3  # seeds, rounds, attackers

    def test_an_interrupted_arena_has_the_plan_and_no_numbers(self, tables: dict[str, Any], tmp_path: Path) -> None:
        dragfl.arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path)
        with pytest.raises(Interrupted):
            stop = Callbacks(should_stop=lambda: True)
            dragfl.arena(tables, ["fedavg", "median"], ["sign_flip"], out=tmp_path, callbacks=stop)
        stored = json.loads((tmp_path / MANIFEST).read_text())
        assert stored["defences"] == ["fedavg", "median"] and stored["numbers"] is None
        assert dragfl.report.arena_numbers(tmp_path)["unfinished"] == 2

    def test_runs_in_parallel_are_recorded_and_stay_so(
        self, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No process is started here: what counts is that two or more unfinished runs were given to several jobs."""

        def fail(planned: Any, failure: Any) -> None:
            raise AssertionError(failure)

        in_turn = sweep._run_in_turn
        monkeypatch.setattr(sweep, "_run_in_processes", lambda runs, callbacks, *_: in_turn(runs, callbacks, (), fail))
        dragfl.arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path, jobs=1)
        dragfl.arena(tables, ["fedavg", "median"], ["sign_flip"], out=tmp_path, jobs=2)
        stored = json.loads((tmp_path / MANIFEST).read_text())
        assert len(stored["overlapped"]) == 2 and all(name.startswith("median") for name in stored["overlapped"])
        dragfl.arena(tables, ["fedavg", "median"], ["sign_flip"], out=tmp_path, jobs=1)
        numbers = json.loads((tmp_path / MANIFEST).read_text())["numbers"]
        assert "2 of 4 runs were executed in parallel" in numbers["no_times"]
        assert set(numbers["seconds_per_round"].values()) == {None}
