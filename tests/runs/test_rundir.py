"""A run directory: what is in it, what it refuses, and how it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.errors import DamagedRun, Interrupted, SpecError
from tests.conftest import Load, kept_bytes

FILES = {
    "spec.toml", "run.json", "metrics.jsonl", "clients.jsonl", "timing.jsonl", "checkpoint.json", "result.json",
    "model.safetensors", "lock", "checkpoint-00000003.safetensors",
}  # fmt: skip


@pytest.fixture
def run(experiment: Load, tmp_path: Path) -> dragfl.Run:
    return dragfl.run(experiment(algorithm={"name": "drag"}), tmp_path / "r")


def test_contents(run: dragfl.Run) -> None:
    assert {path.name for path in run.path.iterdir()} == FILES
    assert (run.path / "lock").read_text() == ""
    assert run.info["seed"] == 3
    assert run.info["parameters"] == 21
    assert {"dragfl", "torch", "numpy", "python", "platform", "cpu", "git"} <= run.info.keys()
    assert dragfl.load(run.spec | {"data": {}}).algorithm.name == "drag"


def test_one_line_a_round(run: dragfl.Run) -> None:
    for rows in (run.metrics, run.clients, run.timing):
        assert [row["round"] for row in rows] == [1, 2, 3]
    assert all({"seconds", "evaluation_seconds", "peak_memory_mb"} <= row.keys() for row in run.timing)


def test_no_clock_outside_timing(run: dragfl.Run) -> None:
    words = ("second", "time", "memory", "date", "mb")
    for name in ("metrics.jsonl", "clients.jsonl"):
        for line in (run.path / name).read_text().splitlines():
            assert not [key for key in json.loads(line) if any(word in key for word in words)]


def test_twice_the_same_spec_and_seed_the_same_bytes(experiment: Load, tmp_path: Path) -> None:
    attack = {"name": "random_scaling", "attackers": 2}
    first = dragfl.run(experiment(attack=attack, algorithm={"name": "drag"}), tmp_path / "a")
    second = dragfl.run(experiment(attack=attack, algorithm={"name": "drag"}), tmp_path / "b")
    other = dragfl.run(experiment("seed=4", attack=attack, algorithm={"name": "drag"}), tmp_path / "c")
    assert kept_bytes(first.path) == kept_bytes(second.path)
    assert all(a != b for a, b in zip(kept_bytes(first.path).values(), kept_bytes(other.path).values(), strict=True))


def test_simulating_is_running(experiment: Load, run: dragfl.Run) -> None:
    records = list(dragfl.simulate(experiment(algorithm={"name": "drag"})))
    assert [{"round": r.round, **r.metrics} for r in records] == run.metrics
    assert [{"round": r.round, **r.clients} for r in records] == run.clients


def test_already_done_runs_nothing(experiment: Load, run: dragfl.Run) -> None:
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.path.iterdir()}
    seen: list[object] = []
    again = dragfl.run(experiment(algorithm={"name": "drag"}), run.path, on_record=seen.append)
    assert again.result == run.result
    assert dragfl.resume(run.path, on_record=seen.append).result == run.result
    assert seen == []
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.path.iterdir()} == before


def test_another_experiment_is_not_overwritten(experiment: Load, run: dragfl.Run) -> None:
    before = kept_bytes(run.path)
    with pytest.raises(SpecError, match=r"holds a run of another experiment .*choose another --out"):
        dragfl.run(experiment(algorithm={"name": "drag", "c": 0.5}), run.path)
    assert kept_bytes(run.path) == before


def test_unfinished_says_resume(experiment: Load, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        dragfl.run(experiment(), tmp_path / "r", should_stop=lambda: True)
    with pytest.raises(SpecError, match=r"unfinished; continue with: dragfl resume .*/r"):
        dragfl.run(experiment(), tmp_path / "r")
    with pytest.raises(DamagedRun, match="the run has not finished: dragfl resume"):
        dragfl.load_run(tmp_path / "r").model()


def test_a_foreign_folder_is_left_alone(experiment: Load, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(SpecError, match="exists and is not a run directory; choose another folder"):
        dragfl.run(experiment(), tmp_path)
    with pytest.raises(SpecError, match="exists and is not a run directory"):
        dragfl.run(experiment(), tmp_path / "mine.txt")
    with pytest.raises(SpecError, match="cannot be created"):
        dragfl.run(experiment(), tmp_path / "mine.txt" / "r")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("where", ["nowhere", "empty", "file"])
def test_not_a_run(tmp_path: Path, where: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for reader in (dragfl.load_run, dragfl.resume):
        with pytest.raises(DamagedRun, match=rf"{where}: not a run directory"):
            reader(tmp_path / where)


def test_an_error_before_the_first_round_leaves_no_folder(experiment: Load, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        dragfl.run(experiment(model={"name": "cnn"}), tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


class TestTarget:
    def test_stop_at_target(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(experiment(rounds=50, target_accuracy=0.6, stop_at_target=True), tmp_path / "r")
        assert run.result is not None
        reached = run.result["rounds_to_target"]
        assert run.result["stopped_by"] == "target"
        assert reached == len(run.metrics) < 50
        assert run.metrics[-1]["accuracy"] >= 0.6
        assert all(row["accuracy"] < 0.6 for row in run.metrics[:-1])

    def test_without_stopping_it_is_noted(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(experiment(rounds=8, target_accuracy=0.6), tmp_path / "r")
        assert run.result is not None
        assert (run.result["rounds"], run.result["stopped_by"]) == (8, "rounds")
        assert run.result["rounds_to_target"] == run.rounds_to(0.6) is not None

    def test_never_reached(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(experiment(target_accuracy=1.0, stop_at_target=True), tmp_path / "r")
        assert run.result is not None
        assert (run.result["rounds_to_target"], run.result["stopped_by"]) == (None, "rounds")


class TestReading:
    def test_a_torn_last_line_is_left_out(self, run: dragfl.Run) -> None:
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"round":4,"accu')
        assert [row["round"] for row in dragfl.load_run(run.path).metrics] == [1, 2, 3]

    @pytest.mark.parametrize("name", ["metrics.jsonl", "result.json", "run.json", "spec.toml"])
    def test_a_damaged_file_is_named(self, run: dragfl.Run, name: str) -> None:
        (run.path / name).write_text("{not this}\n")
        read = {"metrics.jsonl": "metrics", "result.json": "result", "run.json": "info", "spec.toml": "spec"}[name]
        with pytest.raises(DamagedRun, match=rf"{name}: cannot be read .* the run is damaged"):
            getattr(dragfl.load_run(run.path), read)

    def test_pandas(self, run: dragfl.Run, tmp_path: Path) -> None:
        frame = run.to_pandas()
        assert frame.index.tolist() == [1, 2, 3]
        assert frame["accuracy"].tolist() == [accuracy for _, accuracy in run.accuracy]
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "spec.toml").write_text("")
        assert len(dragfl.load_run(tmp_path / "new").to_pandas()) == 0

    def test_result_is_the_sum_of_the_log(self, run: dragfl.Run) -> None:
        assert run.result is not None
        assert run.result["bytes_up"] == sum(row["bytes_up"] for row in run.metrics) == 3 * 6 * 21 * 4
        assert run.result["best_accuracy"] == max(accuracy for _, accuracy in run.accuracy)


def test_evaluated_every_so_often_and_at_the_end(experiment: Load, tmp_path: Path) -> None:
    run = dragfl.run(experiment(rounds=7, evaluation={"every": 3}), tmp_path / "r")
    assert [t for t, _ in run.accuracy] == [3, 6, 7]


def test_a_simulation_can_be_left_and_gone_on_with(experiment: Load) -> None:
    whole = list(dragfl.simulate(experiment(rounds=5)))
    simulation = dragfl.simulate(experiment(rounds=5))
    first: list[Any] = []
    for record in simulation:
        first.append(record)
        if record.round == 2:
            break
    rest = list(simulation)
    assert [r.metrics for r in first + rest] == [r.metrics for r in whole]
    assert simulation.done
    assert list(simulation) == []
    assert simulation.evaluate() == {name: whole[-1].metrics[name] for name in ("accuracy", "loss")}
