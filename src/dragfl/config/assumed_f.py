"""The number f of malicious updates that a robust rule assumes: its default, and how often a cohort has more."""

from __future__ import annotations

import dataclasses
from functools import cache
from math import comb
from typing import Any

from dragfl.aggregates.robust import Chain
from dragfl.aggregates.robust.contract import HasF, assumed_f
from dragfl.config.tables import Attackers, Clients
from dragfl.types import AssumesAttackers

RISK = 0.01  # the default f is exceeded in at most this fraction of the rounds, if the rule admits it


def default_f(rule: Any, attackers: Attackers, clients: Clients) -> int:
    """The 0.99 quantile of the number of attackers in a cohort, or the largest f that the rule admits, if smaller."""
    per_round = clients.per_round or clients.total
    quantile = next(f for f in range(per_round + 1) if probability_above(f, attackers, clients) <= RISK)
    return min(quantile, largest_f(rule, per_round))


def largest_f(rule: Any, n: int) -> int:
    """The largest f with which the rule can work on n updates; 0 if there is none."""
    return next((f for f in range(n, 0, -1) if dataclasses.replace(rule, f=f).shortage(n) is None), 0)


def smallest_f(rule: Any) -> int | None:
    """The f of the rule, or the smallest f of the parts of a chain; None if the rule assumes no number."""
    if not isinstance(rule, AssumesAttackers):
        return None
    parts = rule.parts if isinstance(rule, Chain) else (rule,)
    return min((assumed_f(part, rule.f) for part in parts if isinstance(part, HasF)), default=None)


def probability_above(f: int, attackers: Attackers, clients: Clients) -> float:
    """The probability that a cohort has more than f attackers.

    Attackers that are drawn from the cohort always have the same number; all others have a hypergeometric one.
    """
    drawn = attackers.drawn(clients)
    if attackers.drawn_from_cohort:
        return float(drawn > f)
    ways = count_cohorts(drawn, clients.total, clients.per_round or clients.total)
    return sum(ways[f + 1 :]) / sum(ways)  # of integers, so it is correctly rounded


@cache
def count_cohorts(attackers: int, total: int, sampled: int) -> tuple[int, ...]:
    """The number of cohorts with k = 0, 1, ... attackers: C(A, k) C(M - A, S - k) of the C(M, S) cohorts."""
    counts = range(min(attackers, sampled) + 1)
    return tuple(comb(attackers, k) * comb(total - attackers, sampled - k) for k in counts)
