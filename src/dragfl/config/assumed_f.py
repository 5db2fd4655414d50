"""The number f of malicious updates that a robust rule assumes: its default, and how often a cohort has more."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import accumulate
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
    return largest_f(rule, per_round, quantile)


def largest_f(rule: Any, n: int, limit: int) -> int:
    """The largest f up to a limit with which the rule can work on n updates; 0 if there is none."""
    return next((f for f in range(limit, 0, -1) if dataclasses.replace(rule, f=f).shortage(n) is None), 0)


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
    cohorts = count_cohorts(drawn, clients.total, clients.per_round or clients.total)
    return cohorts[f + 1] / cohorts[0] if f + 1 < len(cohorts) else 0.0  # of integers, so it is correctly rounded


@cache
def count_cohorts(attackers: int, total: int, sampled: int) -> tuple[int, ...]:
    """The number of cohorts with at least k = 0, 1, ... attackers.

    With exactly k of A attackers there are C(A, k) C(M - A, S - k) of the C(M, S) cohorts. Each is computed from the
    one before: a binomial of its own for every k takes minutes for a cohort of thousands.
    """
    fewest, most = max(0, sampled + attackers - total), min(attackers, sampled)
    ways = comb(attackers, fewest) * comb(total - attackers, sampled - fewest)
    exactly = [0] * fewest + [ways]
    for k in range(fewest, most):
        ways = ways * (attackers - k) * (sampled - k) // ((k + 1) * (total - attackers - sampled + k + 1))
        exactly.append(ways)
    return tuple(accumulate(reversed(exactly)))[::-1]
