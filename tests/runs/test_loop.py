"""Running into a directory: repeated, refused, stopped at a target."""

from __future__ import annotations

from pathlib import Path

import pytest

import dragfl
from dragfl.errors import DamagedRun, Interrupted, SpecError
from tests.conftest import Load, kept_bytes


@pytest.fixture
def run(experiment: Load, tmp_path: Path) -> dragfl.Run:
    return dragfl.run(experiment(algorithm={"name": "drag"}), tmp_path / "r")


def test_the_same_spec_and_seed_give_the_same_bytes(experiment: Load, tmp_path: Path) -> None:
    attack = {"name": "random_scaling", "attackers": 2}
    first = dragfl.run(experiment(attack=attack, algorithm={"name": "drag"}), tmp_path / "a")
    second = dragfl.run(experiment(attack=attack, algorithm={"name": "drag"}), tmp_path / "b")
    other = dragfl.run(experiment("seed=4", attack=attack, algorithm={"name": "drag"}), tmp_path / "c")
    assert kept_bytes(first.path) == kept_bytes(second.path)
    assert all(a != b for a, b in zip(kept_bytes(first.path).values(), kept_bytes(other.path).values(), strict=True))


def test_a_finished_run_is_not_repeated(experiment: Load, run: dragfl.Run) -> None:
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.path.iterdir()}
    seen: list[object] = []
    again = dragfl.run(experiment(algorithm={"name": "drag"}), run.path, on_record=seen.append)
    assert again.result == run.result
    assert dragfl.resume(run.path, on_record=seen.append).result == run.result
    assert seen == []
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.path.iterdir()} == before


def test_another_experiment_is_not_overwritten(experiment: Load, run: dragfl.Run) -> None:
    before = kept_bytes(run.path)
    with pytest.raises(
        SpecError, match=r"another experiment: algorithm\.aggregate\.c is 0\.5, there 0\.25; choose.*--fresh"
    ):
        dragfl.run(experiment(algorithm={"name": "drag", "c": 0.5}), run.path)
    assert kept_bytes(run.path) == before


def test_an_unfinished_run_advises_to_resume(experiment: Load, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        dragfl.run(experiment(), tmp_path / "r", should_stop=lambda: True)
    with pytest.raises(SpecError, match=r"unfinished; continue with: dragfl resume .*/r"):
        dragfl.run(experiment(), tmp_path / "r")
    with pytest.raises(DamagedRun, match="the run has not finished: dragfl resume"):
        dragfl.load_run(tmp_path / "r").model()


def test_a_folder_with_other_files_is_refused(experiment: Load, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(SpecError, match="exists and is not a run directory; choose another folder"):
        dragfl.run(experiment(), tmp_path)
    with pytest.raises(SpecError, match="exists and is not a run directory"):
        dragfl.run(experiment(), tmp_path / "mine.txt")
    with pytest.raises(SpecError, match="cannot be created"):
        dragfl.run(experiment(), tmp_path / "mine.txt" / "r")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


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

    def test_reaching_the_target_without_stopping_is_recorded(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(experiment(rounds=8, target_accuracy=0.6), tmp_path / "r")
        assert run.result is not None
        assert (run.result["rounds"], run.result["stopped_by"]) == (8, "rounds")
        assert run.result["rounds_to_target"] == run.rounds_to(0.6) is not None

    def test_never_reached(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(experiment(target_accuracy=1.0, stop_at_target=True), tmp_path / "r")
        assert run.result is not None
        assert (run.result["rounds_to_target"], run.result["stopped_by"]) == (None, "rounds")


def test_evaluated_periodically_and_at_the_end(experiment: Load, tmp_path: Path) -> None:
    run = dragfl.run(experiment(rounds=7, evaluation={"every": 3}), tmp_path / "r")
    assert [t for t, _ in run.accuracy] == [3, 6, 7]
