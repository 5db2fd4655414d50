"""How well a rule's suspicion score tells attackers from honest clients of the same round.

A rule compares the clients of one round, and scores of different rounds are often on different scales. So every
attacker is placed among the honest clients of its round: `above` is the share of them that the rule suspects more,
`tied` the share it suspects as much. The ROC curve is the distribution of these places (the share of attackers caught
when a share t of the honest clients of each round is suspected), and the area under it is the probability that an
attacker is suspected more than an honest client of its round, ties counting half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

SCORE = "suspicion"


def places(lines: Iterable[Mapping[str, Any]]) -> np.ndarray:
    """(k, 2): `above` and `tied` of every attacker that has a score, from the lines of `clients.jsonl`.

    An update that is not finite is turned away before the rule sees it, which is as suspicious as can be.
    """
    found = [_of_round(*_scores(line)) for line in lines if SCORE in line]
    return np.concatenate(found) if found else np.zeros((0, 2))


def auc(placed: np.ndarray) -> float | None:
    """Area under the ROC curve; None where nobody attacks, nobody is honest or there is no score."""
    return float(np.mean(1.0 - placed[:, 0] - 0.5 * placed[:, 1])) if len(placed) else None


def roc(placed: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The share of attackers caught when a share `at` of the honest clients of each round is suspected.

    Among ties who is suspected first is a matter of chance, so the curve is straight across them.
    """
    above, tied = placed[:, :1], placed[:, 1:]
    step = (at >= above - 1e-12).astype(float)
    slope = np.clip((at - above) / np.where(tied > 0, tied, 1.0), 0.0, 1.0)
    caught: np.ndarray = np.where(tied > 0, slope, step).mean(0)
    return caught


def _scores(line: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(scores, attackers) of the clients of a round that have a score."""
    dropped: Sequence[bool] = line.get("dropped") or [False] * len(line["client"])
    rows = [
        (math.inf if turned_away else float(score), bool(bad))
        for score, bad, turned_away in zip(line[SCORE], line["attacker"], dropped, strict=True)
        if turned_away or score is not None
    ]
    return np.array([score for score, _ in rows]), np.array([bad for _, bad in rows], dtype=bool)


def _of_round(scores: np.ndarray, attacker: np.ndarray) -> np.ndarray:
    honest = np.sort(scores[~attacker])
    if not len(honest) or not attacker.any():
        return np.zeros((0, 2))
    below, up_to = (np.searchsorted(honest, scores[attacker], side) for side in ("left", "right"))
    return np.column_stack([1.0 - up_to / len(honest), (up_to - below) / len(honest)])
