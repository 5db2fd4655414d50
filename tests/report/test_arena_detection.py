"""AUC and ROC of a suspicion score against hand-computed numbers and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]

from dragfl.report.arena.detection import auc, rank_attackers, roc


def line(scores: list[float | None], attackers: list[int], dropped: tuple[int, ...] = ()) -> dict[str, Any]:
    """A line of clients.jsonl."""
    return {
        "client": list(range(len(scores))),
        "attacker": [bool(a) for a in attackers],
        "dropped": [i in dropped for i in range(len(scores))],
        "suspicion": scores,
    }


def test_auc_of_a_hand_computed_round() -> None:
    """Attackers 3 and 1, honest 2, 0, 0: the first is above three of three, the second above two: (1 + 2/3) / 2."""
    ranks = rank_attackers([line([3, 1, 2, 0, 0], [1, 1, 0, 0, 0])])
    assert ranks == pytest.approx(np.array([[0.0, 0.0], [1 / 3, 0.0]]))
    assert auc(ranks) == pytest.approx(5 / 6)


def test_ties_count_half_in_the_auc() -> None:
    """The attacker ties with one of two honest clients and is above the other: (1/2 + 1) / 2. All equal: 1/2."""
    assert auc(rank_attackers([line([1, 1, 0], [1, 0, 0])])) == pytest.approx(0.75)
    assert auc(rank_attackers([line([2, 2, 2, 2], [1, 0, 1, 0])])) == pytest.approx(0.5)


def test_scores_are_compared_within_a_round() -> None:
    """The attacker has the highest score in each round, but honest clients of the first exceed that of the second."""
    lines = [line([100, 90, 80], [1, 0, 0]), line([1.0, 0.9, 0.8], [1, 0, 0])]
    assert auc(rank_attackers(lines)) == 1.0


def test_auc_needs_attackers_and_honest_clients() -> None:
    assert auc(rank_attackers([line([1, 2, 3], [0, 0, 0])])) is None
    assert auc(rank_attackers([line([1, 2, 3], [1, 1, 1])])) is None
    assert auc(rank_attackers([])) is None
    assert auc(rank_attackers([{"client": [0, 1], "attacker": [True, False]}])) is None  # a rule without a score


def test_a_dropped_update_has_the_highest_score() -> None:
    """A non-finite update is dropped by the engine; a client without a score for another reason is left out."""
    assert auc(rank_attackers([line([None, 5.0, 7.0], [1, 0, 0], dropped=(0,))])) == 1.0
    assert auc(rank_attackers([line([None, 5.0, 7.0], [1, 0, 0])])) is None


def test_roc_of_hand_computed_ranks() -> None:
    """One attacker above all honest clients, one below half: half are detected at t = 0, all from t = 1/2 on."""
    ranks = np.array([[0.0, 0.0], [0.5, 0.0]])
    assert roc(ranks, np.array([0.0, 0.49, 0.5, 1.0])).tolist() == [0.5, 0.5, 1.0, 1.0]
    tied = np.array([[0.0, 1.0]])  # tied with all honest clients: chance
    assert roc(tied, np.array([0.0, 0.25, 1.0])).tolist() == [0.0, 0.25, 1.0]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_auc_of_one_round_equals_scikit_learn(clients: list[tuple[int, bool]]) -> None:
    scores, attackers = [float(s) for s, _ in clients], [int(a) for _, a in clients]
    ranks = rank_attackers([line(list(scores), attackers)])
    if len(set(attackers)) == 1:
        assert auc(ranks) is None
        return
    assert auc(ranks) == pytest.approx(roc_auc_score(attackers, scores))
    at = np.linspace(0, 1, 2001)
    curve = roc(ranks, at)
    assert np.all(np.diff(curve) >= -1e-12) and curve[-1] == pytest.approx(1.0)
    assert float(np.mean(curve)) == pytest.approx(auc(ranks), abs=2e-3)
