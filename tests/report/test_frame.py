"""`dragfl.frame`: one tidy frame of all runs."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.errors import DamagedRun, SpecError

from .conftest import MakeRun
from .test_export import add_metrics

pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")


def test_a_row_for_each_run_and_round(make_run: MakeRun) -> None:
    """Two runs of 4 rounds, evaluated in rounds 2 and 4."""
    make_run("a", rounds=4, curve=[0.5, 0.75])
    run = make_run("b", algorithm="fedavg", seed=1, rounds=4, curve=[0.25, 0.5])
    table = dragfl.frame(run.path.parent)
    assert list(table.columns[:6]) == ["run", "name", "seed", "finished", "diverged", "round"]
    assert len(table) == 8 and list(table["round"]) == [1, 2, 3, 4] * 2
    assert list(table["accuracy"].dropna()) == [0.5, 0.75, 0.25, 0.5]
    assert list(table["run"].unique()) == [str(run.path.parent / "a"), str(run.path.parent / "b")]
    assert list(table["algorithm.name"].unique()) == ["drag", "fedavg"]
    assert table["algorithm.aggregate.c"].dropna().unique().tolist() == [0.25]
    assert list(table["clients.lr"].unique()) == [0.1]
    assert table.groupby("algorithm.name")["accuracy"].max().to_dict() == {"drag": 0.75, "fedavg": 0.5}
    kinds = table.dtypes.astype(str)
    assert kinds[["seed", "round", "clients.total", "bytes_up"]].tolist() == ["int64"] * 4
    assert kinds[["accuracy", "clients.lr", "seconds", "divergence_mean"]].tolist() == ["float64"] * 4
    assert kinds[["finished", "diverged"]].tolist() == ["bool"] * 2
    assert table["divergence_mean"].isna().tolist() == [False] * 4 + [True] * 4, "fedavg does not measure it"


def test_values_that_are_not_finite_are_numbers(make_run: MakeRun) -> None:
    run = add_metrics(make_run("a", rounds=2), loss="inf", skipped="infeasible: 2 updates")
    table = dragfl.frame(run)
    assert table["loss"].dtype == float and table["loss"].iloc[-1] == float("inf")
    assert table["skipped"].isna().tolist() == [True, False] and table["skipped"].iloc[1] == "infeasible: 2 updates"


def test_lists_are_text_and_classes_are_columns(make_run: MakeRun) -> None:
    make_run("b", seed=1, rounds=2)
    run = add_metrics(make_run("a", rounds=2, spec={"clients.local_steps": [1, 5]}), class_accuracy=[0.5, None, 1.0])
    table = dragfl.frame(run.path.parent)
    assert table["clients.local_steps"].unique().tolist() == ["[1, 5]", 5]
    assert table["class_accuracy_0"].dropna().tolist() == [0.5]
    assert table["class_accuracy_1"].isna().all() and "class_accuracy" not in table


def test_clients(make_run: MakeRun) -> None:
    """Eight sampled clients in each of two rounds; fedavg has no cosine."""
    make_run("a", rounds=2, attack="sign_flip")
    run = make_run("b", algorithm="fedavg", seed=1, rounds=2, attack="sign_flip")
    table = dragfl.frame(run.path.parent, clients=True)
    assert len(table) == 2 * 2 * 8
    assert table.groupby(["run", "round"])["client"].nunique().tolist() == [8] * 4
    assert table["attacker"].dtype == bool and table.loc[table["attacker"], "client"].max() < 3
    logged = [json.loads(line) for line in (run.path / "clients.jsonl").read_text().splitlines()]
    mine = table[table["run"] == str(run.path)]
    assert mine["norm"].tolist() == [value for line in logged for value in line["norm"]]
    assert mine["cosine"].isna().all() and table["cosine"].notna().sum() == 16
    assert "accuracy" not in table and "clients.lr" in table


def test_unfinished_diverged_and_empty_runs(make_run: MakeRun) -> None:
    make_run("new", ran=0, finished=False)
    make_run("half", seed=1, rounds=4, ran=3, finished=False)
    run = make_run("boom", seed=2, rounds=4, ran=2, diverged=True)
    table = dragfl.frame(run.path.parent)
    assert table.groupby("seed")["round"].max().to_dict() == {1: 3, 2: 2}
    assert table.groupby("seed")[["finished", "diverged"]].first().to_numpy().tolist() == [[False, False], [True, True]]
    alone = dragfl.frame(run.path.parent / "new")
    assert len(alone) == 0 and {"run", "seed", "round", "clients.lr"} <= set(alone.columns)


def test_damaged_runs_are_left_out_with_a_warning(make_run: MakeRun) -> None:
    make_run("good", rounds=2)
    run = make_run("bad", seed=1, rounds=2)
    (run.path / "metrics.jsonl").write_text("torn\n")
    with pytest.warns(UserWarning, match=r"damaged, left out: .*bad/metrics\.jsonl"):
        assert set(dragfl.frame(run.path.parent)["seed"]) == {0}
    with pytest.raises(DamagedRun, match="no readable run"):
        dragfl.frame(run)


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no run found"):
        dragfl.frame(tmp_path)


def test_without_pandas(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *more: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        dragfl.frame(make_run("a", rounds=2))
