"""`engine.executor = "flower"`: one real federation on the loopback address, and what surrounds it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl import errors
from dragfl.cli.progress import RunProgress
from dragfl.errors import DataError, Diverged, DragflError, DragflWarning, Interrupted, SpecError
from dragfl.flower import local
from dragfl.runs.directory import FLOWER, METRICS, MODEL, NODES
from dragfl.runs.lock import lock_folder
from tests.conftest import DIGITS
from tests.flower.processes import below, living

TINY: dict[str, Any] = {
    "name": "tiny",
    "seed": 5,
    "rounds": 2,
    "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
    "clients": {"total": 2, "local_steps": 2, "batch_size": 10},
    "algorithm": {"name": "scaffold"},
    "model": {"name": "logistic"},
    "evaluation": {"every": 1},
    "engine": {"block": 1, "executor": "flower"},
    "flower": {"secure": False, "deadline": 3600.0, "wait": 3600.0},
}


def test_a_federation_of_two_nodes_has_the_bits_of_the_simulator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Real processes, two rounds of SCAFFOLD. Afterwards none is left, and nothing of them in the temporary folder."""
    experiment, run = dragfl.load(TINY), tmp_path / "r"
    processes: set[tuple[int, str]] = set()
    records: list[dragfl.RoundRecord] = []

    def on_record(record: dragfl.RoundRecord) -> None:
        records.append(record)
        processes.update(below(os.getpid()))

    with caplog.at_level("INFO", "dragfl.flower"):
        done = dragfl.run(experiment, run, on_record=on_record)
    assert len(processes) >= 7, "a guard, a SuperLink, two SuperNodes and their SuperExecs, a ServerApp"
    assert not living(processes)
    assert "starting SuperLink and 2 SuperNodes" in caplog.text

    simulated = dragfl.run(dragfl.load(TINY, "engine.executor=local"), tmp_path / "simulated")
    assert done.model().keys() == simulated.model().keys()
    assert all(torch.equal(value, simulated.model()[name]) for name, value in done.model().items())
    assert (run / METRICS).read_bytes() == (tmp_path / "simulated" / METRICS).read_bytes()
    assert [record.metrics for record in records] == [
        {key: value for key, value in row.items() if key != "round"} for row in simulated.metrics
    ]
    assert [len(list((run / FLOWER / f"node-{m}").glob("*/*/*.safetensors"))) for m in (0, 1)] == [2, 2]

    assert dragfl.run(experiment, run).path == run, "a finished run is returned, not repeated"
    (run / MODEL).unlink()
    assert all(torch.equal(value, simulated.model()[name]) for name, value in dragfl.resume(run).model().items())


class TestBeforeTheStart:
    """Nothing is started where the federation could not run."""

    def test_an_object_of_this_process_cannot_be_sent(self, toy: dragfl.Dataset) -> None:
        experiment = dragfl.load({**TINY, "data": {"dataset": toy}})
        with pytest.raises(SpecError, match=r"engine\.executor: .* nodes of a federation: 'object:toy'"):
            dragfl.run(experiment, "nowhere")

    def test_own_data_of_nodes(self) -> None:
        with pytest.raises(SpecError, match=r"flower\.data: 'own' is for nodes with data of their own"):
            dragfl.run(dragfl.load(TINY, "flower.data=own"), "nowhere")

    def test_many_nodes_are_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local, "memory_gb", lambda: 64.0)
        with pytest.warns(DragflWarning, match=r"clients\.total: 100 SuperNodes need about 40 GB of memory; lower"):
            local.check_local(dragfl.load(TINY, "clients.total=100"))

    def test_more_nodes_than_memory_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local, "memory_gb", lambda: 16.0)
        with pytest.raises(SpecError, match=r"100 SuperNodes need about 40 GB of memory, and this machine has 16 GB"):
            dragfl.run(dragfl.load(TINY, "clients.total=100"), "nowhere")

    def test_a_run_of_other_settings_is_kept(self, tmp_path: Path) -> None:
        dragfl.run(dragfl.load(TINY, "engine.executor=local"), tmp_path / "r")
        with pytest.raises(SpecError, match="holds a run of another experiment: seed is 6, there 5"):
            dragfl.run(dragfl.load(TINY, "seed=6"), tmp_path / "r")

    def test_a_folder_that_is_no_run_directory_is_kept(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("x")
        with pytest.raises(SpecError, match="exists and is not a run directory"):
            dragfl.run(dragfl.load(TINY), tmp_path, fresh=True)

    def test_a_run_of_deployed_nodes_is_not_resumed_here(self, tmp_path: Path) -> None:
        (tmp_path / "spec.toml").write_text(dragfl.load(TINY).to_toml())
        (tmp_path / NODES).write_text("{}")
        with pytest.raises(SpecError, match=r"that `dragfl run` has not started; continue it there: `flwr run`"):
            dragfl.resume(tmp_path)

    def test_a_sweep_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="'flower' is for `dragfl run`; use 'local' or 'ray' with dragfl sweep"):
            dragfl.sweep(TINY, {"seed": [1, 2]}, out=tmp_path / "sweep")
        assert not (tmp_path / "sweep").exists()

    def test_an_arena_is_refused(self, tmp_path: Path) -> None:
        tables = {**TINY, "clients": {"total": 4}, "attack": {"attackers": 1}}
        with pytest.raises(SpecError, match="'flower' is for `dragfl run`; use 'local' or 'ray' with dragfl arena"):
            dragfl.arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path / "arena")
        assert not (tmp_path / "arena").exists()

    def test_more_replies_or_nodes_than_clients_are_refused(self) -> None:
        with pytest.raises(SpecError, match=r"flower\.min_replies: 5, and only 2 clients are asked in a round"):
            dragfl.load(TINY, "clients.total=4", "clients.per_round=2", "flower.min_replies=5")
        with pytest.raises(SpecError, match=r"flower\.min_nodes: 5 is above clients\.total = 4; lower it"):
            dragfl.load(TINY, "clients.total=4", "flower.min_nodes=5")

    def test_unknown_trackers_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="unknown tracker 'tensorbord'"):
            dragfl.run(dragfl.load(TINY), tmp_path / "r", log="tensorbord")
        assert not (tmp_path / "r").exists()


class TestNewRounds:
    """Rounds are passed on when all three logs have them."""

    def test_they_are_read_once_and_whole(self, tmp_path: Path) -> None:
        metrics, clients, timing = (tmp_path / f"{name}.jsonl" for name in ("metrics", "clients", "timing"))
        for path in (metrics, clients, timing):
            path.write_text('{"round":1}\n')
        rounds = local.NewRounds(tmp_path)
        assert rounds.read() == [], "what is there already is not new"
        append(metrics, '{"round":2,"accuracy":0.5}\n{"round":3')
        append(clients, '{"round":2,"client":[0]}\n')
        assert rounds.read() == []
        append(timing, '{"round":2,"seconds":1}\n')
        assert rounds.read() == [dragfl.RoundRecord(2, {"accuracy": 0.5}, {"client": [0]}, {"seconds": 1})]
        append(metrics, ',"accuracy":0.6}\n')
        append(clients, '{"round":3,"client":[1]}\n')
        append(timing, '{"round":3,"seconds":2}\n')
        assert [record.metrics for record in rounds.read()] == [{"accuracy": 0.6}]
        assert rounds.read() == []

    def test_before_the_directory_exists(self, tmp_path: Path) -> None:
        assert local.NewRounds(tmp_path / "later").read() == []


class Scripted:
    """A fleet that answers what it is told: a status, or an error."""

    def __init__(self, *answers: str | DragflError) -> None:
        self.answers, self.stopped, self.checks = list(answers), 0, 0

    def check(self) -> None:
        self.checks += 1

    def status(self, run: str) -> tuple[str, str]:
        answer = self.answers.pop(0)
        if isinstance(answer, DragflError):
            raise answer
        return answer, "details"

    def stop(self, run: str) -> None:
        self.stopped += 1
        if self.stopped == 1:
            raise DragflError("busy")


class TestFollow:
    """The caller's part while the ServerApp works."""

    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local, "POLL_S", 0.0)
        monkeypatch.setattr(local, "STATUS_S", 0.0)

    def follow(self, fleet: Any, folder: Path, stop: bool = False) -> tuple[tuple[str, str], list[int]]:
        rounds: list[int] = []
        new = local.NewRounds(folder)
        for name in ("metrics", "clients", "timing"):
            append(folder / f"{name}.jsonl", '{"round":1}\n')
        end = local._follow(fleet, "7", new, lambda record: rounds.append(record.round), lambda: stop)
        return end, rounds

    def test_rounds_are_passed_on_until_the_run_has_ended(self, tmp_path: Path) -> None:
        fleet = Scripted("running", "running", "finished:completed")
        assert self.follow(fleet, tmp_path) == (("finished:completed", "details"), [1])
        assert (fleet.checks, fleet.stopped) == (3, 0)

    def test_a_request_to_stop_is_repeated_until_it_is_heard(self, tmp_path: Path) -> None:
        fleet = Scripted("running", "running", "running", "finished:stopped")
        assert self.follow(fleet, tmp_path, stop=True)[0][0] == "finished:stopped"
        assert fleet.stopped == 2

    def test_a_superlink_may_be_silent_for_a_while(self, tmp_path: Path) -> None:
        busy = [DragflError("no answer")] * (local.SILENT - 1)
        assert self.follow(Scripted(*busy, "running", *busy, "finished:failed"), tmp_path)[0][0] == "finished:failed"
        with pytest.raises(DragflError, match="no answer"):
            self.follow(Scripted(*busy, DragflError("no answer")), tmp_path)

    def test_a_stopped_server_may_write_its_checkpoint(self, tmp_path: Path) -> None:
        """Its run has ended for Flower before its process has; the lock of the run directory is the process's."""
        answers = iter(range(3))
        lock = ExitStack()
        lock.enter_context(lock_folder(tmp_path))

        class Stopping(Scripted):
            def status(self, run: str) -> tuple[str, str]:
                if next(answers) == 2:
                    lock.close()
                return "finished:stopped", ""

        assert self.follow(Stopping(), tmp_path)[0][0] == "finished:stopped"
        assert next(answers, None) is None


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


class TestOutcome:
    """What the caller gets when the ServerApp has ended."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "spec.toml").write_text(DIGITS)
        (tmp_path / METRICS).write_text('{"round":1}\n{"round":2}\n')
        (tmp_path / FLOWER).mkdir()
        return tmp_path

    def ended(self, folder: Path, raised: str, message: str) -> None:
        (folder / FLOWER / local.SERVER_LOG).write_text(f"Traceback ...\n{raised}: {message}\nExit Code: 201\n")
        local._outcome(folder, "finished:failed", f"ServerApp failed with exception: {message}")

    @pytest.mark.parametrize("kind", [SpecError, DataError, errors.DamagedRun, errors.PartError, Interrupted])
    def test_an_error_of_dragfl_is_the_same_error_here(self, folder: Path, kind: type[DragflError]) -> None:
        with pytest.raises(kind, match=r"\Adata: it is wrong\Z"):
            self.ended(folder, f"dragfl.errors.{kind.__name__}", "data: it is wrong")

    def test_an_error_of_a_setting_is_a_spec_error(self, folder: Path) -> None:
        with pytest.raises(SpecError, match=r"drag\.c: 2 is outside"):
            self.ended(folder, "dragfl.errors.SettingError", "drag.c: 2 is outside [0, 1]")

    def test_any_other_error_has_the_log(self, folder: Path) -> None:
        with pytest.raises(
            DragflError, match=r"the ServerApp has failed: no memory; its log, .*\n  Traceback"
        ) as caught:
            self.ended(folder, "RuntimeError", "no memory")
        assert caught.value.exit_code == 1

    def test_a_killed_server_leaves_a_run_to_resume(self, folder: Path) -> None:
        """SuperLink's text of a ServerApp that was killed or paused names no exception."""
        (folder / FLOWER / local.SERVER_LOG).write_text("round 2 of 5\n")
        again = re.escape(f"continue with: dragfl resume {folder}")
        with pytest.raises(Interrupted, match=rf"No heartbeat received from the task; its log, (.|\n)*{again}"):
            local._outcome(folder, "finished:failed", "No heartbeat received from the task")

    def test_a_stopped_run_can_be_resumed(self, folder: Path) -> None:
        again = re.escape(f"stopped after round 2; continue with: dragfl resume {folder}")
        with pytest.raises(Interrupted, match=again):
            local._outcome(folder, "finished:stopped", "")

    def test_nothing_is_left_of_a_run_that_was_stopped_before_its_first_round(self, tmp_path: Path) -> None:
        (tmp_path / "r" / FLOWER).mkdir(parents=True)
        with pytest.raises(Interrupted, match="stopped before the first round, and nothing was written"):
            local._outcome(tmp_path / "r", local.STOPPED, "")
        assert not (tmp_path / "r").exists()

    def test_divergence_is_an_error(self, folder: Path) -> None:
        result = {"stopped_by": "diverged", "message": "diverged at round 3: its norm is 1e31"}
        (folder / "result.json").write_text(json.dumps(result))
        with pytest.raises(Diverged, match="diverged at round 3"):
            local._outcome(folder, "finished:completed", "")


def test_a_lost_federation_leaves_a_run_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the processes, not of the run: exit code 5 and the command to continue."""

    class Broken:
        def __init__(self, folder: Path, nodes: int, *, secure: bool) -> None:
            self.folder = folder

        def __enter__(self) -> None:
            (tmp_path / "r").mkdir()
            (tmp_path / "r" / "spec.toml").write_text(dragfl.load(TINY).to_toml())
            raise DragflError("SuperLink has ended (signal 9)")

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(local, "Fleet", Broken)
    again = re.escape(f"SuperLink has ended (signal 9)\ncontinue with: dragfl resume {tmp_path / 'r'}")
    with pytest.raises(Interrupted, match=again):
        dragfl.run(dragfl.load(TINY), tmp_path / "r")


@pytest.mark.parametrize(("options", "shown"), [({}, True), ({"quiet": True}, False), ({"as_json": True}, False)])
def test_the_command_line_shows_what_is_started(
    options: dict[str, bool], shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunProgress(**options).messages():
        local.log.info("starting %d SuperNodes", 2)
    local.log.info("not shown")
    assert capsys.readouterr().out == ("starting 2 SuperNodes\n" if shown else "")


def test_the_spec_of_the_run_names_the_executor() -> None:
    assert tomllib.loads(dragfl.load(TINY).to_toml())["engine"]["executor"] == "flower"
