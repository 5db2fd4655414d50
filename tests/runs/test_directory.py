"""The files of a run directory, and reading them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dragfl
from dragfl.errors import DamagedRun
from tests.conftest import Load

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


def test_one_line_per_round(run: dragfl.Run) -> None:
    for rows in (run.metrics, run.clients, run.timing):
        assert [row["round"] for row in rows] == [1, 2, 3]
    assert all({"seconds", "evaluation_seconds", "peak_memory_mb"} <= row.keys() for row in run.timing)


def test_only_the_timing_log_depends_on_the_clock(run: dragfl.Run) -> None:
    words = ("second", "time", "memory", "date", "mb")
    for name in ("metrics.jsonl", "clients.jsonl"):
        for line in (run.path / name).read_text().splitlines():
            assert not [key for key in json.loads(line) if any(word in key for word in words)]


@pytest.mark.parametrize("where", ["nowhere", "empty", "file"])
def test_a_folder_that_is_not_a_run(tmp_path: Path, where: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for reader in (dragfl.load_run, dragfl.resume):
        with pytest.raises(DamagedRun, match=rf"{where}: not a run directory"):
            reader(tmp_path / where)


class TestReading:
    def test_an_incomplete_last_line_is_ignored(self, run: dragfl.Run) -> None:
        (run.path / "result.json").unlink()  # a finished run has no such line
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
