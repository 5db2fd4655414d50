"""How well the suspicion score of a rule separates attackers from honest clients of the same round.

Scores of different rounds are often on different scales, so every attacker is compared with the honest clients of its
own round: `above` is the fraction of them with a higher score, `tied` the fraction with the same score. The ROC curve
is the fraction of attackers detected when a fraction t of the honest clients of each round is flagged. The area under
it (AUC) is the probability that an attacker has a higher score than an honest client of its round; ties count half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

SCORE = "suspicion"


def rank_attackers(lines: Iterable[Mapping[str, Any]]) -> np.ndarray:
    """(k, 2): `above` and `tied` of every attacker with a score, from the lines of `clients.jsonl`.

    An update that is not finite is dropped before the rule sees it and has the highest possible score.
    """
    ranks = [_rank_in_round(*_scores(line)) for line in lines if SCORE in line]
    return np.concatenate(ranks) if ranks else np.zeros((0, 2))


def auc(ranks: np.ndarray) -> float | None:
    """Area under the ROC curve; None without attackers, honest clients or scores."""
    return float(np.mean(1.0 - ranks[:, 0] - 0.5 * ranks[:, 1])) if len(ranks) else None


def roc(ranks: np.ndarray, flagged: np.ndarray) -> np.ndarray:
    """The fraction of attackers detected when these fractions of the honest clients of each round are flagged.

    Ties are ordered at random, so the curve is linear across them.
    """
    above, tied = ranks[:, :1], ranks[:, 1:]
    step = (flagged >= above - 1e-12).astype(float)
    slope = np.clip((flagged - above) / np.where(tied > 0, tied, 1.0), 0.0, 1.0)
    detected: np.ndarray = np.where(tied > 0, slope, step).mean(0)
    return detected


def _scores(line: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(scores, attacker flags) of the clients of a round that have a score."""
    dropped: Sequence[bool] = line.get("dropped") or [False] * len(line["client"])
    rows = [
        (math.inf if drop else float(score), bool(attacker))
        for score, attacker, drop in zip(line[SCORE], line["attacker"], dropped, strict=True)
        if drop or score is not None
    ]
    return np.array([score for score, _ in rows]), np.array([attacker for _, attacker in rows], dtype=bool)


def _rank_in_round(scores: np.ndarray, attacker: np.ndarray) -> np.ndarray:
    honest = np.sort(scores[~attacker])
    if not len(honest) or not attacker.any():
        return np.zeros((0, 2))
    below, up_to = (np.searchsorted(honest, scores[attacker], side) for side in ("left", "right"))
    return np.column_stack([1.0 - up_to / len(honest), (up_to - below) / len(honest)])
