"""AUC and ROC of a suspicion score against hand-computed numbers and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]

from dragfl.report.arena.detection import Count, auc, count_flags, flagged_by, rank_attackers, roc


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


def counts(lines: list[dict[str, Any]]) -> dict[int, tuple[int, int, float, float]]:
    return {m: (c.sampled, c.attacked, c.flagged, c.caught) for m, c in count_flags(lines).items()}


def rates(lines: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    total = sum(count_flags(lines).values(), Count())
    return total.true_positive_rate, total.false_positive_rate


def test_the_k_highest_scores_are_flagged_and_ties_share_the_places_left() -> None:
    """Two attackers, so two places. Scores 9 5 7 1: clients 0 and 2. Scores 9 5 5 1: client 0, and half of 1 and 2."""
    first, second = line([9, 5, 7, 1], [1, 1, 0, 0]), line([9, 5, 5, 1], [1, 1, 0, 0])
    assert counts([first]) == {0: (1, 1, 1, 1), 1: (1, 1, 0, 0), 2: (1, 0, 1, 0), 3: (1, 0, 0, 0)}
    assert counts([first, second]) == {0: (2, 2, 2, 2), 1: (2, 2, 0.5, 0.5), 2: (2, 0, 1.5, 0), 3: (2, 0, 0, 0)}
    assert rates([first, second]) == (2.5 / 4, 1.5 / 4)
    assert flagged_by([first]) == "suspicion"


def test_attackers_that_send_the_same_update_share_the_places() -> None:
    """An honest client has the first of three places, three equal attackers two: 2/3 each, and 1 of 2 honest ones."""
    assert rates([line([4, 4, 4, 9, 1], [1, 1, 1, 0, 0])]) == (pytest.approx(2 / 3), 1 / 2)


def test_equal_scores_are_chance() -> None:
    """One place for three: 1/3 of the attacker, 1/3 of each honest client."""
    assert rates([line([3, 3, 3], [1, 0, 0])]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_a_rule_with_weights_flags_the_clients_of_weight_zero() -> None:
    """The weight decides, not the score: client 2 has the highest score and some weight."""
    weighted = {**line([0.1, 0.2, 0.9], [1, 1, 0]), "trust": [0.0, 0.3, 0.01]}
    assert counts([weighted]) == {0: (1, 1, 1, 1), 1: (1, 1, 0, 0), 2: (1, 0, 0, 0)}
    honest = {**line([0.1, 0.2], [0, 0]), "trust": [0.0, 1.0]}
    assert rates([honest]) == (None, 1 / 2)
    assert flagged_by([honest]) == "trust"


def test_rounds_without_attackers_count_only_for_weights() -> None:
    assert count_flags([line([5, 1, 2], [0, 0, 0])]) == {}


def test_a_rule_without_weights_and_scores_flags_nobody() -> None:
    plain = {"client": [0, 1], "attacker": [True, False], "dropped": [True, False], "norm": [None, 1.0]}
    assert count_flags([plain]) == {} and flagged_by([plain]) is None


def test_dropped_updates_are_flagged_and_missing_results_are_not() -> None:
    """Client 0 sent NaN; client 1 sent nothing: it made no steps and does not count. So one attacker, one place."""
    one = {**line([None, None, 4.0, 1.0], [1, 1, 0, 0], dropped=(0, 1)), "steps": [5, 0, 5, 5]}
    assert counts([one]) == {0: (1, 1, 1, 1), 2: (1, 0, 0, 0), 3: (1, 0, 0, 0)}
    two = {**line([None, None, 4.0, 1.0], [1, 0, 0, 0], dropped=(0, 1)), "steps": [5, 5, 5, 5]}
    assert counts([two])[1] == (1, 0, 1, 0)  # an honest client that diverged is a false positive


def test_clients_that_attack_in_some_rounds_have_both_rates() -> None:
    """Client 0 attacks in the first of two rounds and is flagged in both: 1 of 1 and 1 of 1."""
    count = count_flags([line([9, 1, 2], [1, 0, 0]), line([9, 1, 2], [0, 1, 0])])[0]
    assert (count.sampled, count.attacked, count.flagged, count.caught) == (2, 1, 2, 1)
    assert (count.true_positive_rate, count.false_positive_rate) == (1.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30), st.permutations(range(30)))
def test_k_are_flagged_in_any_order_of_clients(clients: list[tuple[int, bool]], order: list[int]) -> None:
    one = line([float(s) for s, _ in clients], [int(a) for _, a in clients])
    found, k = counts([one]), sum(attacker for _, attacker in clients)
    assert sum(flagged for _, _, flagged, _ in found.values()) == pytest.approx(k)
    kept = [i for i in order if i < len(clients)]
    shuffled = {key: [values[i] for i in kept] for key, values in one.items()}
    assert counts([shuffled]) == found
