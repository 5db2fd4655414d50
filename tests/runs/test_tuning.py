"""The selection of a tuned value, with numbers computed by hand."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragfl.runs.directory import Run
from dragfl.runs.tuning import Score, best_candidate, next_value, score_run


def made_run(folder: Path, values: dict[int, float], stopped_by: str = "rounds") -> Run:
    """A finished run with this validation accuracy in these rounds; the test accuracy is 0.5 throughout."""
    rows = [
        {"round": t, "accuracy": 0.5, "validation_accuracy": v, "validation_loss": 1 - v if isfinite(v) else "inf"}
        for t, v in values.items()
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"round": 9}]))
    (folder / "spec.toml").write_text("seed = 100\n")
    (folder / "result.json").write_text(json.dumps({"stopped_by": stopped_by}))
    return Run(folder)


def test_the_score_of_a_run(tmp_path: Path) -> None:
    run = made_run(tmp_path, {2: 0.3, 4: 0.7, 6: 0.6})
    assert score_run(run, "validation_accuracy", 0.6) == Score(4, 0.7)
    assert score_run(run, "validation_accuracy", 0.8) == Score(None, 0.7)
    assert score_run(run, "validation_accuracy") == Score(None, 0.7)
    assert score_run(run, "accuracy", 0.5) == Score(2, 0.5)
    assert score_run(run, "validation_loss").best == pytest.approx(0.3)
    infinite = made_run(tmp_path, {2: float("-inf"), 4: 0.7})
    assert infinite.values("validation_loss") == [(2, float("inf")), (4, pytest.approx(0.3))]
    assert score_run(infinite, "validation_loss").best == pytest.approx(0.3), "logged as a string, and not the best"
    assert score_run(made_run(tmp_path, {2: 0.9}, "diverged"), "validation_accuracy", 0.6) == Score(None, None)


def scores(*pairs: tuple[int | None, float | None]) -> list[Score]:
    return [Score(rounds, best) for rounds, best in pairs]


@pytest.mark.parametrize(
    ("candidates", "best"),
    [
        # medians of rounds 20 and 30: one slow seed of the first does not matter
        ([scores((10, 0.8), (20, 0.8), (90, 0.8)), scores((30, 0.9), (30, 0.9), (30, 0.9))], 0),
        # median rounds: not reached, since two of three seeds do not reach it; 500
        ([scores((10, 0.9), (None, 0.7), (None, 0.7)), scores((500, 0.8), (500, 0.8), (None, 0.7))], 1),
        # both not reached: the median accuracies 0.6 and 0.65 decide
        ([scores((None, 0.6), (None, 0.6), (None, 0.9)), scores((None, 0.65), (None, 0.65), (None, 0.1))], 1),
        # one of three diverged: the median of the others is the lower one, 0.7 against 0.6
        ([scores((None, None), (None, 0.7), (None, 0.8)), scores((None, 0.6), (None, 0.6), (None, 0.6))], 0),
        # two of three diverged: last
        ([scores((10, 0.9), (None, None), (None, None)), scores((None, 0.1), (None, 0.1), (None, 0.1))], 1),
        # equal: the first one
        ([scores((10, 0.5)), scores((10, 0.5))], 0),
    ],
)
def test_the_best_candidate(candidates: list[list[Score]], best: int) -> None:
    assert best_candidate(candidates, "validation_accuracy") == best


def test_a_lower_loss_is_better() -> None:
    assert best_candidate([scores((None, 0.4)), scores((None, 0.3)), scores((None, None))], "validation_loss") == 1


@pytest.mark.parametrize(
    ("values", "selected", "more"),
    [
        ([1.0, 2.0, 4.0], 2.0, None),
        ([1.0, 2.0, 4.0], 4.0, 8.0),
        ([4.0, 1.0, 2.0], 1.0, 0.5),
        ([0.5, 0.9], 0.9, 0.95),
        ([0.5, 0.9], 0.5, 0.25),
        ([0.9, 0.98], 0.98, 0.99),
        ([0.01, 0.1], 0.1, 0.2),
        ([0.5, 1.0], 1.0, 2.0),
        ([5, 10], 10, 20),
        ([1, 10], 1, None),
        ([0.0, 0.1], 0.0, None),
        ([0.1], 0.1, None),
        (["sgd", "adam"], "adam", None),
        ([False, True], True, None),
    ],
)
def test_the_next_value_of_a_grid(values: list[Any], selected: Any, more: Any) -> None:
    assert next_value(values, selected) == more


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, unique=True), st.data())
def test_the_next_value_lies_outside_of_the_grid(values: list[float], data: st.DataObject) -> None:
    selected = data.draw(st.sampled_from(values))
    more = next_value(values, selected)
    if selected == min(values):
        assert 0 < more < selected
    elif selected == max(values):
        assert more > selected and (more < 1 or selected >= 1 or selected < 0.5)
    else:
        assert more is None
