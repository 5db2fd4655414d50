"""How well a rule tells attackers from honest clients of the same round: who was flagged, and how scores rank them.

A client that sent a result is **flagged** in a round when

- its update was not finite and was dropped, or
- the rule logs `trust`, its weight of each update, and gives this one weight 0, or
- the rule logs no `trust` but `suspicion`, and this score is among the k highest, k the number of attackers in the
  round. Clients with equal scores share the places that are left: two places for three of them are 2/3 of a flag each,
  the mean over random orders. Rounds without attackers do not count.

A rule that logs neither has no rates. The true attackers are in clients.jsonl only for judging.

Scores of different rounds are often on different scales, so every attacker is compared with the honest clients of its
own round: `above` is the fraction of them with a higher score, `tied` the fraction with the same score. The ROC curve
is the fraction of attackers detected when a fraction t of the honest clients of each round is flagged. The area under
it (AUC) is the probability that an attacker has a higher score than an honest client of its round; ties count half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

TRUST, SCORE = "trust", "suspicion"


@dataclass(frozen=True)
class Count:
    """In how many rounds a client was sampled, attacked, was flagged, and was flagged while it attacked."""

    sampled: int = 0
    attacked: int = 0
    flagged: float = 0.0  # a fraction where scores tie
    caught: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, name) + getattr(other, name) for name in Count.__match_args__))

    @property
    def true_positive_rate(self) -> float | None:
        """Fraction of the rounds as an attacker in which it was flagged; None if there are none."""
        return self.caught / self.attacked if self.attacked else None

    @property
    def false_positive_rate(self) -> float | None:
        """Fraction of the rounds as an honest client in which it was flagged; None if there are none."""
        honest = self.sampled - self.attacked
        return (self.flagged - self.caught) / honest if honest else None


def count_flags(lines: Iterable[Mapping[str, Any]]) -> dict[int, Count]:
    """Client -> its counts, from the lines of `clients.jsonl`; empty if the rule logs neither column."""
    counts: dict[int, Count] = {}
    for line in lines:
        for client, attacker, flagged in _flags(line):
            one = Count(1, int(attacker), flagged, flagged if attacker else 0.0)
            counts[client] = counts.get(client, Count()) + one
    return dict(sorted(counts.items()))


def flagged_by(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """The column by which clients are flagged, or None."""
    return next((name for line in lines for name in (TRUST, SCORE) if name in line), None)


def _flags(line: Mapping[str, Any]) -> list[tuple[int, bool, float]]:
    """(client, attacker, flagged) of the clients that sent a result."""
    if TRUST in line:
        return [(r.client, r.attacker, float(r.value in (0.0, math.inf))) for r in _received(line, TRUST)]
    rows = _received(line, SCORE) if SCORE in line else []
    k, scores = sum(r.attacker for r in rows), np.array([r.value for r in rows])
    return [(r.client, r.attacker, _share(scores, r.value, k)) for r in rows] if k else []


def _share(scores: np.ndarray, score: float, k: int) -> float:
    """The probability that a client with this score has one of the first k places, equal scores in random order."""
    above, tied = int((scores > score).sum()), int((scores == score).sum())
    return 1.0 if score == math.inf else min(1.0, max(0.0, (k - above) / tied))


@dataclass(frozen=True)
class _Received:
    client: int
    attacker: bool
    value: float  # infinite: dropped, because the update was not finite


def _received(line: Mapping[str, Any], column: str) -> list[_Received]:
    """The clients that sent a result and have a value in this column, or were dropped."""
    n = len(line["client"])
    dropped, steps = line.get("dropped") or [False] * n, line.get("steps") or [1] * n
    return [
        _Received(int(client), bool(attacker), math.inf if drop else float(value))
        for client, attacker, drop, made, value in zip(
            line["client"], line["attacker"], dropped, steps, line[column], strict=True
        )
        if (made if drop else value is not None)  # a client without a result has made no steps
    ]


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
    rows = _received(line, SCORE)
    return np.array([r.value for r in rows]), np.array([r.attacker for r in rows], dtype=bool)


def _rank_in_round(scores: np.ndarray, attacker: np.ndarray) -> np.ndarray:
    honest = np.sort(scores[~attacker])
    if not len(honest) or not attacker.any():
        return np.zeros((0, 2))
    below, up_to = (np.searchsorted(honest, scores[attacker], side) for side in ("left", "right"))
    return np.column_stack([1.0 - up_to / len(honest), (up_to - below) / len(honest)])
