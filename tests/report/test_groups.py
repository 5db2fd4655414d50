"""Runs with different data, model or code are never one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dragfl
from dragfl import report
from dragfl.runs.directory import Run, load_run
from tests.report.conftest import MakeRun

PRINTS: dict[str, Any] = {"data": "aaaaaaaa", "weights": "1", "model": "mmmmmmmm", "code": {}}


def with_prints(run: Run, python: str = "3.11.2", **changes: Any) -> Run:
    """The run with fingerprints in its run.json."""
    info = {**run.info, "python": python, "fingerprints": {**PRINTS, **changes}}
    (run.path / "run.json").write_text(json.dumps(info))
    return load_run(run.path)


def labels(*runs: Run) -> list[tuple[str, tuple[int, ...]]]:
    return [(group.label, group.seeds) for group in report.group_runs(runs)]


def code(loaded: str, file: str | None = None) -> dict[str, Any]:
    return {"attack.name": {"loaded": loaded, "files": {"mine": file} if file else {}}}


def test_seeds_of_the_same_data_are_one_line(make_run: MakeRun) -> None:
    runs = [with_prints(make_run(f"s{seed}", seed=seed), weights=str(seed)) for seed in (0, 1, 2)]
    assert labels(*runs) == [("drag", (0, 1, 2))]


def test_other_data(make_run: MakeRun) -> None:
    runs = [
        with_prints(make_run(f"s{seed}", seed=seed), data="bbbbbbbb" if seed > 1 else "aaaaaaaa") for seed in range(4)
    ]
    assert labels(*runs) == [("drag · data aaaaaa", (0, 1)), ("drag · data bbbbbb", (2, 3))]


def test_another_model_and_other_code(make_run: MakeRun) -> None:
    one, two = with_prints(make_run("a", seed=0)), with_prints(make_run("b", seed=1), model="nnnnnnnn")
    assert labels(one, two) == [("drag · model mmmmmm", (0,)), ("drag · model nnnnnn", (1,))]
    three, four = (with_prints(make_run(f"c{i}", seed=i), code=code(str(i))) for i in range(2))
    (first, _), (second, _) = labels(three, four)
    assert first.startswith("drag · code ") and second.startswith("drag · code ") and first != second


def test_bytecode_of_another_python_is_not_compared(make_run: MakeRun) -> None:
    one = with_prints(make_run("a", seed=0), code=code("x", "file"))
    other = with_prints(make_run("b", seed=1), "3.12.0", code=code("y", "file"))
    assert labels(one, other) == [("drag", (0, 1))]
    edited = with_prints(make_run("c", seed=2), "3.12.0", code=code("z", "other file"))
    assert len(labels(one, edited)) == 2


def test_a_frame_has_the_digests(make_run: MakeRun) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    one, other = with_prints(make_run("a")), with_prints(make_run("b", seed=1), data="bbbbbbbb")
    table = dragfl.frame([one, other])
    assert table.groupby("seed")["fingerprint.data"].first().to_dict() == {0: "aaaaaaaa", 1: "bbbbbbbb"}
    assert table["fingerprint.model"].unique().tolist() == ["mmmmmmmm"] and "fingerprint.code" not in table


def test_runs_without_fingerprints(make_run: MakeRun) -> None:
    """They stay with the others where these agree; else nobody knows to which of them they belong."""
    old, one = make_run("old", seed=0), with_prints(make_run("a", seed=1))
    assert labels(old, one) == [("drag", (0, 1))]
    two = with_prints(make_run("b", seed=2), data="bbbbbbbb")
    assert labels(old, one, two) == [
        ("drag · data unknown", (0,)), ("drag · data aaaaaa", (1,)), ("drag · data bbbbbb", (2,)),
    ]  # fmt: skip
    (old.path / "run.json").unlink()
    assert labels(load_run(old.path), one) == [("drag", (0, 1))]


def test_algorithms_of_different_names_with_equal_parts(make_run: MakeRun) -> None:
    """`mine` has the parts of fedavg: two rows of two seeds."""
    runs = [
        make_run(f"{name}{seed}", algorithm="fedavg", seed=seed, rounds=2, spec={"algorithm.name": name})
        for name in ("fedavg", "mine")
        for seed in (0, 1)
    ]
    assert labels(*runs) == [("fedavg", (0, 1)), ("mine", (0, 1))]


def test_a_sweep_and_its_copy(make_run: MakeRun) -> None:
    """The same seeds in two folders: a row for each folder."""
    runs = [make_run(f"{folder}/drag{seed}", seed=seed, rounds=2) for folder in ("a", "b") for seed in (0, 1)]
    assert labels(*runs) == [("drag · a", (0, 1)), ("drag · b", (0, 1))]


def test_settings_are_named_before_digests(make_run: MakeRun) -> None:
    runs = [with_prints(make_run("a")), with_prints(make_run("b", spec={"stop_at_target": True}), data="bbbbbbbb")]
    first, second = (label for label, _ in labels(*runs))
    assert first != second == "drag · stop_at_target=true"
