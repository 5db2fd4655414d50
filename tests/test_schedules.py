"""Schedules: numbers that change with the round, and checks of their range."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragfl.errors import SpecError
from dragfl.schedules import Schedule, at, check_choice, check_range
from tests.strategies import QUICK


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (Schedule(0.25), {0: 0.25, 1: 0.25, 10**6: 0.25}),
        (Schedule(0.5, "linear", 0.1, 4), {0: 0.5, 1: 0.4, 2: 0.3, 4: 0.1, 5: 0.1, 1000: 0.1}),
        (Schedule(0.1, "linear", 0.5, 4), {0: 0.1, 3: 0.4, 9: 0.5}),
        (Schedule(1.0, "cosine", 0.0, 4), {0: 1.0, 1: (1 + math.sqrt(0.5)) / 2, 2: 0.5, 4: 0.0, 9: 0.0}),
        (Schedule(0.6, "inverse_sqrt"), {0: 0.6, 3: 0.3, 8: 0.2}),
        (Schedule(0.6, "inverse_sqrt", period=10.0), {0: 0.6, 30: 0.3, 80: 0.2}),
    ],
)
def test_values_of_each_kind(schedule: Schedule, values: dict[int, float]) -> None:
    """linear: end + (start - end)(1 - t/rounds); cosine: the same with (1 + cos(pi t/rounds))/2;

    inverse_sqrt: start / sqrt(1 + t/period). After `rounds` the value stays at the end.
    """
    assert {t: at(schedule, t) for t in values} == pytest.approx(values)


def test_a_number_is_constant() -> None:
    assert at(0.3, 7) == 0.3
    assert isinstance(at(1, 0), float)


@QUICK
@given(
    st.sampled_from(["constant", "linear", "cosine", "inverse_sqrt"]),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 50),
    st.integers(0, 200),
)
def test_no_value_leaves_the_bounds(kind: Any, start: float, end: float, rounds: int, t: int) -> None:
    schedule = Schedule(start, kind, end, rounds)
    low, high = schedule.bounds
    assert low - 1e-12 <= schedule(t) <= high + 1e-12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "linear"}, "schedule.rounds: 0 for kind 'linear'; give the number of rounds"),
        ({"kind": "cosine", "rounds": -1}, "schedule.rounds: -1"),
        ({"kind": "inverse_sqrt", "period": 0.0}, "schedule.period: 0.0; give a number above 0"),
        ({"kind": "inverse_sqrt", "period": float("nan")}, "schedule.period: nan"),
        ({"kind": "cosin", "rounds": 3}, r"schedule.kind: 'cosin' is unknown; did you mean 'cosine'\?"),
    ],
)
def test_invalid_schedules_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Schedule(0.5, **settings)


@pytest.mark.parametrize("value", [0.0, 1.0, 1, Schedule(0.5, "inverse_sqrt"), Schedule(1.0, "cosine", 0.0, 5)])
def test_a_closed_range_includes_its_ends(value: Any) -> None:
    check_range("rule", "c", value, 0.0, 1.0)


@pytest.mark.parametrize(
    "value",
    [-1e-9, 1.0 + 1e-9, float("nan"), float("inf"), Schedule(0.5, "linear", 1.1, 3), Schedule(float("nan"))],
)
def test_values_outside_a_closed_range_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"^rule.c: .* is outside \[0, 1\]; choose a value inside it$"):
        check_range("rule", "c", value, 0.0, 1.0)


@pytest.mark.parametrize("value", [1e-9, 1.0, Schedule(0.5, "inverse_sqrt"), Schedule(0.5, "cosine", 0.1, 3)])
def test_values_near_an_open_end_are_accepted(value: Any) -> None:
    check_range("rule", "alpha", value, 0.0, 1.0, open_low=True)


@pytest.mark.parametrize(
    "value",
    [
        0.0,
        Schedule(0.0),
        Schedule(0.0, "inverse_sqrt"),
        Schedule(0.5, "linear", 0.0, 3),
        Schedule(-0.5, "inverse_sqrt"),
    ],
)
def test_values_at_an_open_end_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"rule.alpha: .* is outside \(0, 1\]"):
        check_range("rule", "alpha", value, 0.0, 1.0, open_low=True)


@pytest.mark.parametrize("value", ["0.5", None, [0.5], {"kind": "linear"}])
def test_values_that_are_not_numbers_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=f"is a {type(value).__name__}; give a number or a schedule"):
        check_range("rule", "c", value, 0.0, 1.0)


def test_choices() -> None:
    check_choice("rule", "variant", "paper", ("paper", "authors"))
    with pytest.raises(SpecError, match=r"^rule.variant: 'x' is unknown; known: authors, paper$"):
        check_choice("rule", "variant", "x", ("paper", "authors"))
