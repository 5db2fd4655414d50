"""AUC and ROC of a suspicion score against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]

from dragfl.report.arena.detection import auc, places, roc


def line(scores: list[float | None], attackers: list[int], dropped: tuple[int, ...] = ()) -> dict[str, Any]:
    """A line of clients.jsonl."""
    return {
        "client": list(range(len(scores))),
        "attacker": [bool(a) for a in attackers],
        "dropped": [i in dropped for i in range(len(scores))],
        "suspicion": scores,
    }


def test_by_hand() -> None:
    """Attackers 3 and 1, honest 2, 0 and 0: the first beats all three, the second two of three. (1 + 2/3) / 2."""
    placed = places([line([3, 1, 2, 0, 0], [1, 1, 0, 0, 0])])
    assert placed == pytest.approx(np.array([[0.0, 0.0], [1 / 3, 0.0]]))
    assert auc(placed) == pytest.approx(5 / 6)


def test_ties_count_half() -> None:
    """The attacker ties with one of two honest clients and beats the other: (1/2 + 1) / 2. All equal: chance."""
    assert auc(places([line([1, 1, 0], [1, 0, 0])])) == pytest.approx(0.75)
    assert auc(places([line([2, 2, 2, 2], [1, 0, 1, 0])])) == pytest.approx(0.5)


def test_rounds_are_compared_within_themselves() -> None:
    """In each round the attacker stands out; pooled, the honest clients of the first would pass that of the second."""
    lines = [line([100, 90, 80], [1, 0, 0]), line([1.0, 0.9, 0.8], [1, 0, 0])]
    assert auc(places(lines)) == 1.0


def test_a_single_class_has_no_auc() -> None:
    assert auc(places([line([1, 2, 3], [0, 0, 0])])) is None
    assert auc(places([line([1, 2, 3], [1, 1, 1])])) is None
    assert auc(places([])) is None
    assert auc(places([{"client": [0, 1], "attacker": [True, False]}])) is None  # a rule without a score


def test_an_update_that_is_not_finite_is_most_suspicious() -> None:
    """Turned away by the engine; a client without a score for another reason is left out."""
    assert auc(places([line([None, 5.0, 7.0], [1, 0, 0], dropped=(0,))])) == 1.0
    assert auc(places([line([None, 5.0, 7.0], [1, 0, 0])])) is None


def test_roc_by_hand() -> None:
    """One attacker above all honest clients, one below half of them: half are caught at once, all from t = 1/2 on."""
    placed = np.array([[0.0, 0.0], [0.5, 0.0]])
    assert roc(placed, np.array([0.0, 0.49, 0.5, 1.0])).tolist() == [0.5, 0.5, 1.0, 1.0]
    tied = np.array([[0.0, 1.0]])  # among all: as by chance
    assert roc(tied, np.array([0.0, 0.25, 1.0])).tolist() == [0.0, 0.25, 1.0]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_one_round_is_the_ordinary_auc(clients: list[tuple[int, bool]]) -> None:
    scores, attackers = [float(s) for s, _ in clients], [int(a) for _, a in clients]
    placed = places([line(list(scores), attackers)])
    if len(set(attackers)) == 1:
        assert auc(placed) is None
        return
    assert auc(placed) == pytest.approx(roc_auc_score(attackers, scores))
    at = np.linspace(0, 1, 2001)
    curve = roc(placed, at)
    assert np.all(np.diff(curve) >= -1e-12) and curve[-1] == pytest.approx(1.0)
    assert float(np.mean(curve)) == pytest.approx(auc(placed), abs=2e-3)
