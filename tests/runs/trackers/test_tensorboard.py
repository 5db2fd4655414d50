"""TensorBoard gets what metrics.jsonl has, once, however often the run was killed and resumed."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # type: ignore[import-untyped]

import dragfl
from dragfl.cli import main
from dragfl.errors import Interrupted, SpecError
from dragfl.runs.trackers import FILE, Trackers, flat, scalars
from dragfl.runs.trackers.tensorboard import TensorBoard
from tests.conftest import Load, kept_bytes, shell
from tests.runs.processes import LONG, kill_at
from tests.runs.trackers.events import read_events, read_scalars


def expected(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars that a tracker must have, from the logs; TensorBoard stores float32."""
    wanted: dict[str, list[tuple[int, float]]] = {}
    read = dragfl.load_run(run)
    for metrics, timing in zip(read.metrics, read.timing, strict=True):
        for name, value in scalars(metrics, timing).items():
            wanted.setdefault(name, []).append((metrics["round"], float(np.float32(value))))
    return wanted


def test_the_keys_and_values_are_those_of_the_log(experiment: Load, tmp_path: Path) -> None:
    run = dragfl.run(experiment(), tmp_path / "r", log="tensorboard")
    logged = read_scalars(run.path)
    assert logged == expected(run.path)
    names = {name for row in run.metrics for name in row} - {"round"}
    assert {name.split("/")[0] for name in logged} - {"timing"} == names
    last = run.metrics[-1]["class_accuracy"]
    assert [logged[f"class_accuracy/{k}"][-1][1] for k in range(3)] == pytest.approx(last)
    assert [round for round, _ in logged["timing/seconds"]] == [1, 2, 3]


def test_settings_and_figures(experiment: Load, tmp_path: Path) -> None:
    run = dragfl.run(experiment(), tmp_path / "r", log=["tensorboard"])
    events = read_events(run.path)
    assert events.Tags()["images"] == ["accuracy", "label_distribution"]
    assert "spec/text_summary" in events.Tags()["tensors"]
    settings = HParamsPluginData.FromString(events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content)
    assert settings.session_start_info.hparams["clients.lr"].number_value == 0.2


def test_the_result_is_that_of_a_run_without_it(experiment: Load, tmp_path: Path) -> None:
    plain = dragfl.run(experiment(), tmp_path / "plain")
    logged = dragfl.run(experiment(), tmp_path / "logged", log="tensorboard")
    assert kept_bytes(plain.path) == kept_bytes(logged.path)
    assert (plain.path / "spec.toml").read_bytes() == (logged.path / "spec.toml").read_bytes()


def test_a_finished_run_logs_nothing_again(experiment: Load, tmp_path: Path) -> None:
    for _ in range(2):
        run = dragfl.run(experiment(), tmp_path / "r", log="tensorboard")
        dragfl.resume(run.path, experiment(), log="tensorboard")
    assert len(list((run.path / "tensorboard").iterdir())) == 1


def test_an_interrupted_run_continues_without_being_asked_to(experiment: Load, tmp_path: Path) -> None:
    """Stopped after round 1 of 3: rounds 1, 2, 3 once each in the same folder."""
    with pytest.raises(Interrupted):
        dragfl.run(experiment(), tmp_path / "r", log="tensorboard", should_stop=lambda: True)
    dragfl.resume(tmp_path / "r", experiment())
    assert read_scalars(tmp_path / "r") == expected(tmp_path / "r")


def test_a_tracker_that_is_added_later_gets_the_earlier_rounds(experiment: Load, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        dragfl.run(experiment(), tmp_path / "r", should_stop=lambda: True)
    dragfl.resume(tmp_path / "r", experiment(), log="tensorboard")
    assert read_scalars(tmp_path / "r") == expected(tmp_path / "r")


def test_killed_and_resumed(tmp_path: Path) -> None:
    """Killed without a warning, at a moment when events wait in memory and rounds follow the last checkpoint."""
    (tmp_path / "x.toml").write_text(LONG.replace("[checkpoint]\nevery = 1", "[checkpoint]\nevery = 30"))
    run = tmp_path / "r"
    kill_at(run, 40, 0.0, "run", "x.toml", "--out", "r", "--log", "tensorboard")
    assert not (run / "result.json").exists()
    done = shell("resume", run, "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_scalars(run) == expected(run)
    assert len(expected(run)["timing/seconds"]) == 120


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_run_of_a_sweep_has_its_own(digits_toml: Path, tmp_path: Path, jobs: int) -> None:
    grid = {"seed": [0, 1], "rounds": [2]}
    for run in dragfl.sweep(digits_toml, grid, tmp_path / "s", jobs=jobs, log="tensorboard"):
        assert read_scalars(run.path) == expected(run.path)


def test_the_sweep_command_logs(digits_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.write_report", lambda runs, out: out)
    words = ["seed=0", "rounds=1", "--out", str(tmp_path / "s"), "--log", "tensorboard", "--quiet"]
    assert main(["sweep", str(digits_toml), *words]) == 0
    (run,) = (path.parent for path in (tmp_path / "s").rglob("spec.toml"))
    assert read_scalars(run) == expected(run)


def test_the_arena_logs(digits_toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.write_arena_report", lambda folder: folder)
    monkeypatch.chdir(digits_toml.parent)
    words = ["rounds=1", "--defences", "fedavg", "--attacks", "sign_flip", "--out", "a", "--log", "tensorboard"]
    assert main(["arena", str(digits_toml), *words, "--quiet", "--jobs", "1"]) == 0
    runs = [path.parent for path in Path("a").rglob("spec.toml")]
    assert len(runs) == 2 and all(read_scalars(run) == expected(run) for run in runs)


def test_a_failure_in_the_middle_does_not_stop_the_run(
    experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: TensorBoard, round: int, values: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TensorBoard, "metrics", fail)
    with caplog.at_level(logging.WARNING):
        run = dragfl.run(experiment(), tmp_path / "r", log="tensorboard")
    assert run.finished and len(run.metrics) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "tensorboard: OSError: [Errno 28] No space left on device; the run continues without it"
    ]


def test_a_folder_that_cannot_be_written_does_not_stop_the_run(
    experiment: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Trackers.__enter__

    def block(self: Trackers) -> Trackers:
        (tmp_path / "r" / "tensorboard").write_text("a file where the folder should be")
        return begin(self)

    monkeypatch.setattr(Trackers, "__enter__", block)
    assert dragfl.run(experiment(), tmp_path / "r", log="tensorboard").finished
    assert len(caplog.records) == 1 and "the run continues without it" in caplog.text


def test_unknown_and_missing_trackers_are_refused_before_the_run(
    experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match=r"--log: unknown tracker 'tensorbord'; did you mean 'tensorboard'\?"):
        dragfl.run(experiment(), tmp_path / "r", log="tensorbord")
    monkeypatch.setattr("dragfl.runs.trackers.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"mlflow is not installed; pip install 'dragfl\[mlflow\]'"):
        dragfl.run(experiment(), tmp_path / "r", log="mlflow")
    assert not (tmp_path / "r").exists()


def test_a_finished_run_refuses_an_unknown_tracker_too(experiment: Load, tmp_path: Path) -> None:
    dragfl.run(experiment(), tmp_path / "r")
    for again in (
        lambda: dragfl.run(experiment(), tmp_path / "r", log="x"),
        lambda: dragfl.resume(tmp_path / "r", log="x"),
    ):
        with pytest.raises(SpecError, match="--log: unknown tracker 'x'"):
            again()


def test_a_run_that_is_logged_elsewhere_names_the_file(
    experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        dragfl.run(experiment(), tmp_path / "r", log="tensorboard", should_stop=lambda: True)
    monkeypatch.setattr("dragfl.runs.trackers.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"tensorboard is not installed \(this run is logged there: .*tracker\.json\)"):
        dragfl.resume(tmp_path / "r", experiment())


@pytest.mark.parametrize("damage", ["", "[1]", '{"other": 1}'])
def test_a_damaged_tracker_file_begins_a_new_tracker_run(experiment: Load, tmp_path: Path, damage: str) -> None:
    with pytest.raises(Interrupted):
        dragfl.run(experiment(), tmp_path / "r", log="tensorboard", should_stop=lambda: True)
    (tmp_path / "r" / FILE).write_text(damage)
    assert dragfl.resume(tmp_path / "r", experiment(), log="tensorboard").finished
    assert json.loads((tmp_path / "r" / FILE).read_text()) == {"tensorboard": {"folder": "tensorboard"}}


def test_scalars_and_settings_by_name() -> None:
    assert scalars({"round": 3, "a": 1, "b": "nan", "why": "text", "c": [0.5, None]}) == pytest.approx(
        {"a": 1.0, "b": float("nan"), "c/0": 0.5}, nan_ok=True
    )
    assert flat({"clients": {"lr": {"start": 0.1}}, "seed": 2}) == {"clients.lr.start": 0.1, "seed": 2}
