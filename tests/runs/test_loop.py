"""Running into a directory: repeated, refused, stopped at a target."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main
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


class TestMissingModel:
    """`model()` and `dragfl resume` agree on the way out."""

    def test_it_is_restored_from_the_last_checkpoint(
        self, digits_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = dragfl.run(digits_toml, tmp_path / "r")
        model, before = run.path / "model.safetensors", kept_bytes(run.path)
        model.unlink()
        with pytest.raises(DamagedRun, match=f"the file is missing: dragfl resume {run.path}"):
            run.model()
        assert main(["resume", str(run.path)]) == 0
        assert "model.safetensors: restored from the last checkpoint" in capsys.readouterr().out
        assert kept_bytes(run.path) == before
        assert run.model().keys() == dragfl.load_run(run.path).model().keys()

    def test_an_unreadable_file(self, run: dragfl.Run) -> None:
        (run.path / "model.safetensors").write_bytes(b"half")
        with pytest.raises(DamagedRun, match=r"cannot be read .*delete it, then: dragfl resume"):
            run.model()

    def test_without_an_intact_checkpoint(self, experiment: Load, run: dragfl.Run) -> None:
        """The result stays; the run can only be repeated."""
        (run.path / "model.safetensors").unlink()
        spec = experiment(algorithm={"name": "drag"})
        (run.path / "checkpoint.json").write_text("{}")
        with pytest.raises(DamagedRun, match=r"checkpoint\.json: cannot be used .*--fresh"):
            dragfl.resume(run.path, spec)
        (run.path / "checkpoint.json").unlink()
        with pytest.raises(DamagedRun, match=r"model\.safetensors is missing, and the last checkpoint .*--fresh"):
            dragfl.resume(run.path, spec)
        assert dragfl.run(spec, run.path).result == run.result
        fresh = dragfl.run(spec, run.path, fresh=True)
        assert fresh.result == run.result and fresh.model()

    def test_a_missing_result_is_written_again(self, experiment: Load, run: dragfl.Run) -> None:
        before = kept_bytes(run.path)
        (run.path / "result.json").unlink()
        (run.path / "model.safetensors").unlink()
        assert kept_bytes(dragfl.resume(run.path, experiment(algorithm={"name": "drag"})).path) == before


@pytest.mark.parametrize("fresh", [False, True])
def test_a_live_run_says_who_holds_it(experiment: Load, tmp_path: Path, fresh: bool) -> None:
    """Before its first checkpoint and after it; with other settings too."""
    refused: list[str] = []

    def meanwhile(record: dragfl.RoundRecord) -> None:
        for other in (experiment(), experiment(clients={"lr": 0.7})):
            with pytest.raises(SpecError) as error:
                dragfl.run(other, tmp_path / "r", fresh=fresh)
            refused.append(str(error.value))
        with pytest.raises(SpecError, match="in use by process"):
            dragfl.resume(tmp_path / "r", experiment())

    dragfl.run(experiment(checkpoint={"every": 2}), tmp_path / "r", on_record=meanwhile)
    holder = rf"r: in use by process {os.getpid()} on {socket.gethostname()} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert len(refused) == 2 * 3
    assert all(re.search(holder, text) and "unfinished" not in text for text in refused)
