"""A grid of runs: its plan, interruptions, and that no run is repeated."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl import report
from dragfl.algorithms import PRESETS
from dragfl.errors import Interrupted, RunsFailed, SpecError
from dragfl.runs.sweep import Callbacks
from dragfl.runs.sweep_plan import LONGEST_NAME, parse_grid, plan_sweep, run_name, split_commas
from dragfl.types import RoundRecord
from tests.conftest import DIGITS, kept_bytes, merged

SIXTEEN = (
    "fedavg,fedprox,scaffold,adabest,feddyn,feddc,mime,mimelite,fedavgm,fedadam,fedyogi,fedadagrad,fednova,fedcm,"
    "fedexp,drag"
)
SMALL = merged(tomllib.loads(DIGITS), {"rounds": 4, "attack": None, "evaluation": {"every": 2}})
GRID: dict[str, list[Any]] = {"algorithm.name": ["fedavg", "drag", "scaffold"], "seed": [0, 1]}


class TestGrid:
    @pytest.mark.parametrize(
        ("text", "pieces"),
        [
            ("a", ["a"]),
            ("0,1, 2", ["0", "1", "2"]),
            ("[1,2],[3,4]", ["[1,2]", "[3,4]"]),
            ("{kind='shards',k=2},{kind='iid'}", ["{kind='shards',k=2}", "{kind='iid'}"]),
            ("\"a,b\",'c,]d',e", ['"a,b"', "'c,]d'", "e"]),
            ("[[1,2],[3]],x", ["[[1,2],[3]]", "x"]),
            ("a,", ["a", ""]),
        ],
    )
    def test_commas(self, text: str, pieces: list[str]) -> None:
        assert split_commas(text) == pieces

    def test_values_are_toml_literals_or_words(self) -> None:
        words = ["seed=0,1", "algorithm.name=fedavg,drag", "clients.local_steps=[1,5],3", "clients.lr=0.1,1e-2"]
        words += ["data.partition={kind='shards',k=2},{kind='iid'}", "stop_at_target=true,false"]
        assert parse_grid(words) == {
            "seed": [0, 1],
            "algorithm.name": ["fedavg", "drag"],
            "clients.local_steps": [[1, 5], 3],
            "clients.lr": [0.1, 0.01],
            "data.partition": [{"kind": "shards", "k": 2}, {"kind": "iid"}],
            "stop_at_target": [True, False],
        }

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["seed"], "'seed'; write key=value,value"),
            (["seed="], "'seed='; write key=value,value"),
            (["=1"], "write it as key=value"),
            (["seed=0,,1"], "'' is not a TOML value"),
            (["seed=0", "seed=1"], "'seed' is given twice; put all its values in one word"),
            (["seed=0", "seed =1"], "'seed' is given twice"),
            (["clients.local_steps=[1,2"], "is not a TOML value"),
        ],
    )
    def test_mistakes(self, words: list[str], message: str) -> None:
        with pytest.raises(SpecError) as error:
            parse_grid(words)
        assert message in str(error.value)


class TestPlan:
    def test_every_combination_in_order(self, tmp_path: Path) -> None:
        planned = plan_sweep(SMALL, GRID, tmp_path)
        assert [p.name for p in planned] == [
            "fedavg-seed0", "fedavg-seed1", "drag-seed0", "drag-seed1", "scaffold-seed0", "scaffold-seed1",
        ]  # fmt: skip
        for p in planned:
            assert p.folder == tmp_path / p.name
            assert p.experiment.name == SMALL["name"], "the name that the user gave"
            assert p.name == f"{p.experiment.algorithm.name}-seed{p.experiment.seed}"
        assert list(tmp_path.iterdir()) == [], "planning writes nothing"

    @pytest.mark.parametrize(
        ("chosen", "name"),
        [
            ({"clients.lr": 0.1}, "lr0.1"),
            ({"clients.lr": 1}, "lr1"),
            ({"clients.lr": 1.0}, "lr1.0"),
            ({"clients.local_steps": [1, 5]}, "local_steps_1_5"),
            ({"data.partition.kind": "iid"}, "iid"),
            ({"data.partition": {"kind": "shards", "k": 2}}, "partitionshards_k2"),
            ({"data.dataset": "npz:/some where/x.npz"}, "datasetnpz_some_where_x.npz"),
            ({"algorithm.name": "mine:make", "stop_at_target": True}, "mine_make-stop_at_targettrue"),
            ({}, ""),
        ],
    )
    def test_names(self, chosen: dict[str, Any], name: str) -> None:
        assert run_name(chosen) == name

    def test_long_names_are_shortened_and_stay_distinct(self) -> None:
        one, two = (run_name({f"clients.{'k' * 200}": value}) for value in (1, 2))
        assert len(one) == len(two) == LONGEST_NAME
        assert one != two
        assert one == run_name({f"clients.{'k' * 200}": 1})

    def test_adding_a_value_changes_no_name(self, tmp_path: Path) -> None:
        more = {"algorithm.name": ["fedavg", "fedprox", "drag", "scaffold"], "seed": [2, 0, 1]}
        before = {p.name: p.experiment.tables() for p in plan_sweep(SMALL, GRID, tmp_path)}
        after = {p.name: p.experiment.tables() for p in plan_sweep(SMALL, more, tmp_path)}
        assert before.items() <= after.items()
        assert len(after) == 12

    def test_sixteen_algorithms_and_three_seeds(self, tmp_path: Path) -> None:
        planned = plan_sweep(SMALL, parse_grid([f"algorithm.name={SIXTEEN}", "seed=0,1,2"]), tmp_path)
        assert len(planned) == len({p.folder for p in planned}) == 48
        assert {p.experiment.algorithm.name for p in planned} == set(SIXTEEN.split(",")) <= set(PRESETS)

    def test_values_may_be_python_objects(self, tmp_path: Path) -> None:
        own = dragfl.load({"algorithm": {"name": "drag", "c": 0.7}}).algorithm
        planned = plan_sweep(SMALL, {"algorithm.name": ["fedavg", own], "seed": [0]}, tmp_path)
        assert [p.name for p in planned] == ["fedavg-seed0", "drag-seed0"]
        assert planned[1].experiment.algorithm is own

    @pytest.mark.parametrize(
        ("grid", "message"),
        [
            ({"seed": []}, "sweep: no values for 'seed'; give at least one"),
            ({"seed": [0, 0]}, "two runs have the name 'seed0'; give each value once"),
            ({"data.dataset": ["npz:a/b", "npz:a_b"]}, "two runs have the name 'datasetnpz_a_b'"),
            ({"sed": [0]}, "sweep, run 'sed0': override 'sed=0': sed: unknown key 'sed'; did you mean 'seed'?"),
            (
                {"algorithm.name": ["drag", "fedavg"], "algorithm.c": [0.1]},
                "sweep, run 'fedavg-c0.1': override 'algorithm.c=0.1': algorithm.c: fedavg has no setting 'c'",
            ),
            ({"clients.lr": [0.1, -1.0]}, "sweep, run 'lr-1.0': "),
            ({"algorithm.name": ["drag", "fltrust"]}, "algorithm.name: 'fltrust' needs trusted root"),
        ],
    )
    def test_mistakes_are_reported_before_any_run(self, tmp_path: Path, grid: dict[str, Any], message: str) -> None:
        with pytest.raises(SpecError) as error:
            dragfl.sweep(SMALL, grid, tmp_path / "out")
        assert message in str(error.value)
        assert not (tmp_path / "out").exists()


def log_rounds(log: list[tuple[str, int]], stop_after: int = 10**9) -> Callbacks:
    """Callbacks that log (run, round), and ask to stop once the log has `stop_after` rounds."""
    names: list[str] = []
    return Callbacks(
        on_begin=lambda p, done: names.append(p.name),
        on_record=lambda record: log.append((names[-1], record.round)),
        should_stop=lambda: len(log) >= stop_after,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted sweep."""
    out = tmp_path_factory.mktemp("whole")
    runs = dragfl.sweep(SMALL, GRID, out)
    assert [run.path.name for run in runs] == [p.name for p in plan_sweep(SMALL, GRID, out)]
    assert all(run.finished and len(run.metrics) == 4 for run in runs)
    return out


def bytes_of(out: Path) -> dict[str, dict[str, bytes]]:
    return {path.parent.name: kept_bytes(path.parent) for path in out.glob("*/result.json")}


class TestInterrupted:
    @pytest.mark.parametrize("after", [1, 3, 4, 5, 9, 14])
    def test_continues_where_it_stopped(self, tmp_path: Path, whole: Path, after: int) -> None:
        """Six runs of four rounds. It stops when asked, in a run or between two, and no round is repeated."""
        log: list[tuple[str, int]] = []
        with pytest.raises(Interrupted) as error:
            dragfl.sweep(SMALL, GRID, tmp_path, log_rounds(log, after))
        assert len(log) == after, "at the end of the round in which it was asked, also if that is a run's last"
        assert str(error.value) == f"sweep stopped with {after // 4} of 6 runs finished; continue with the same command"
        assert len(bytes_of(tmp_path)) == after // 4
        dragfl.sweep(SMALL, GRID, tmp_path, log_rounds(log))
        assert log == [(p.name, t) for p in plan_sweep(SMALL, GRID, tmp_path) for t in (1, 2, 3, 4)]
        assert bytes_of(tmp_path) == bytes_of(whole)

    def test_a_sweep_of_one_round_runs_can_be_stopped(self, tmp_path: Path) -> None:
        short = merged(SMALL, {"rounds": 1})
        with pytest.raises(Interrupted, match="1 of 6 runs finished"):
            dragfl.sweep(short, GRID, tmp_path, Callbacks(should_stop=lambda: True))
        assert len(bytes_of(tmp_path)) == 1

    def test_the_message_has_the_cause_if_the_user_did_not_stop_it(self, tmp_path: Path) -> None:
        def fill_disk(record: RoundRecord) -> None:
            raise Interrupted("metrics.jsonl: cannot be written, the disk is full")

        with pytest.raises(Interrupted, match=r"0 of 6 runs finished.*the disk is full"):
            dragfl.sweep(SMALL, GRID, tmp_path, Callbacks(on_record=fill_disk))

    def test_a_stop_in_the_very_last_round_is_no_interruption(self, tmp_path: Path) -> None:
        log: list[tuple[str, int]] = []
        runs = dragfl.sweep(SMALL, {"seed": [0, 1]}, tmp_path, log_rounds(log, 8))
        assert len(runs) == 2

    def test_callbacks_report_rounds_already_done(self, tmp_path: Path) -> None:
        log: list[tuple[str, int]] = []
        with pytest.raises(Interrupted):
            dragfl.sweep(SMALL, GRID, tmp_path, log_rounds(log, 6))
        rounds_done: list[int] = []
        ended: list[tuple[str, bool]] = []
        dragfl.sweep(
            SMALL,
            GRID,
            tmp_path,
            Callbacks(
                on_begin=lambda p, done: rounds_done.append(done),
                on_end=lambda run, already: ended.append((run.path.name, already)),
            ),
        )
        assert rounds_done == [4, 2, 0, 0, 0, 0]
        assert ended == [(p.name, i == 0) for i, p in enumerate(plan_sweep(SMALL, GRID, tmp_path))]


class TestKept:
    def test_adding_values_keeps_finished_runs(self, tmp_path: Path) -> None:
        dragfl.sweep(SMALL, {"algorithm.name": ["drag"], "seed": [0]}, tmp_path)
        stamp = (tmp_path / "drag-seed0" / "result.json").stat().st_mtime_ns
        log: list[tuple[str, int]] = []
        more = {"algorithm.name": ["fedavg", "drag"], "seed": [0, 1]}
        runs = dragfl.sweep(SMALL, more, tmp_path, log_rounds(log))
        assert [run.path.name for run in runs] == ["fedavg-seed0", "fedavg-seed1", "drag-seed0", "drag-seed1"]
        assert {name for name, _ in log} == {"fedavg-seed0", "fedavg-seed1", "drag-seed1"}
        assert (tmp_path / "drag-seed0" / "result.json").stat().st_mtime_ns == stamp

    def test_a_changed_experiment_is_refused(self, tmp_path: Path) -> None:
        """Results of the old file must not be taken for results of the new one, finished or not."""
        dragfl.sweep(SMALL, {"seed": [0]}, tmp_path)
        changed = merged(SMALL, {"clients": {"lr": 0.2}})
        log: list[tuple[str, int]] = []
        with pytest.raises(SpecError, match=r"seed0: holds a run of another experiment: clients\.lr is 0\.2, there"):
            dragfl.sweep(changed, {"seed": [7, 0]}, tmp_path, log_rounds(log))
        assert log == [], "reported before any run, also before seed 7"

    def test_a_diverged_run_is_a_result(self, tmp_path: Path) -> None:
        source = merged(SMALL, {"algorithm": {"name": "fedavg", "server_lr": 1e6}})
        grid = {"clients.lr": [1e6, 1e-9]}
        diverged, fine = dragfl.sweep(source, grid, tmp_path)
        assert diverged.result is not None
        assert fine.result is not None
        assert (diverged.result["stopped_by"], fine.result["stopped_by"]) == ("diverged", "rounds")
        assert "diverged in round 1: " in diverged.result["message"]
        stamps = [(run.path / "result.json").stat().st_mtime_ns for run in (diverged, fine)]
        log: list[tuple[str, int]] = []
        again = dragfl.sweep(source, grid, tmp_path, log_rounds(log))
        assert log == []
        assert [run.result for run in again] == [diverged.result, fine.result]
        assert [(run.path / "result.json").stat().st_mtime_ns for run in again] == stamps

    def test_a_folder_with_other_files_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "seed1").mkdir()
        (tmp_path / "seed1" / "notes.txt").write_text("precious")
        with pytest.raises(RunsFailed, match="seed1: exists and is not a run directory") as error:
            dragfl.sweep(SMALL, {"seed": [1, 0]}, tmp_path)
        assert error.value.exit_code == SpecError.exit_code and list(error.value.failures) == ["seed1"]
        assert dragfl.load_run(tmp_path / "seed0").finished, "the other run is not lost"
        assert (tmp_path / "seed1" / "notes.txt").read_text() == "precious"


def test_the_report_ranks_the_algorithms(whole: Path) -> None:
    """One row per algorithm over both seeds, the best mean first."""
    rows = report.summarize_runs(whole)
    assert {row.label for row in rows} == {"fedavg", "drag", "scaffold"}
    assert all(row.seeds == (0, 1) for row in rows)
    best = {}
    for row in rows:
        key = row.label
        runs = [dragfl.load_run(whole / f"{key}-seed{seed}") for seed in (0, 1)]
        best[row.label] = sum(max(value for _, value in run.accuracy) for run in runs) / 2
        assert row.best_accuracy is not None
        assert row.best_accuracy.mean == pytest.approx(best[row.label])
    assert [row.label for row in rows] == sorted(best, key=lambda label: -best[label])
    assert len(set(best.values())) > 1, "there must be something to rank"


def test_a_run_of_a_sweep_has_the_bytes_of_a_single_run(whole: Path, tmp_path: Path) -> None:
    spec = dragfl.load(SMALL, "algorithm.name=drag", "seed=1")
    assert kept_bytes(dragfl.run(spec, tmp_path / "r").path) == kept_bytes(whole / "drag-seed1")
