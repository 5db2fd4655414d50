"""Helpers of several attacks: visible clean updates, their moments, copies, and a search for the strongest factor.

Rows with a NaN or an infinity are left out, because the server drops them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from dragfl.arithmetic import finite_rows, norm, row_norms
from dragfl.arrays import Array, like, matrix
from dragfl.errors import SettingError, SpecError
from dragfl.lazy import Tensor, torch
from dragfl.types import RoundContext, Updates, View

SampleKnowledge = Literal["colluding", "omniscient"]  # use the attackers' own clean updates, or the honest ones
SearchKnowledge = Literal["colluding", "omniscient", "white_box"]  # white_box: search a factor against the rule itself
Defence = Callable[[Array], Array]  # (f, d) sent by the attackers -> the server's step (d,) of this round
LEAST, MOST = 2.0**-5, 2.0**10  # factors that a search tries


def clean_rows(name: str, honest: Array, f: int) -> Tensor:
    """The clean updates (h, d) without rows that are not finite; one zero row if none is left."""
    if isinstance(f, bool) or not isinstance(f, int | np.integer) or f < 0:
        raise SpecError(f"{name}: f={f!r}; give the number of attackers, an integer of at least 0")
    X = matrix(name, honest)
    keep = finite_rows(row_norms(X))
    if keep.all():
        return X
    return X[keep] if keep.any() else X.new_zeros(1, X.shape[1])


def moments(X: Tensor) -> tuple[Tensor, Tensor]:
    """(mu, sigma): mean and standard deviation (n - 1 in the denominator) of each coordinate; sigma = 0 for one row."""
    return X.mean(0), X.std(0) if len(X) > 1 else torch.zeros_like(X[0])


def copies(row: Tensor, f: int, honest: Array) -> Array:
    """The same row (d,) from all f attackers, as the same kind of array as the honest updates."""
    return like(row.repeat(f, 1), honest)


def visible_updates(view: View) -> Tensor | None:
    """The finite clean updates in the view: the honest ones if granted, else the attackers' own; else None."""
    for clean in (view.honest, view.own):
        if clean is not None and len(clean) and bool((keep := finite_rows(clean.norm)).any()):
            return clean.delta if keep.all() else clean.delta[keep]
    return None


def forge_from_clean(view: View, forge: Callable[[Tensor, int], Tensor]) -> Updates:
    """The attackers' updates with delta = forge(visible clean updates, number of attackers).

    Weight and extras are unchanged. If no clean update is finite, the own updates are sent.
    """
    clean = visible_updates(view)
    return view.own if clean is None else replace(view.own, delta=forge(clean, len(view.own)))


def forge_rows(view: View, context: RoundContext, forge: Callable[[Tensor, np.random.Generator], Tensor]) -> Updates:
    """Each attacker's update (1, d) forged separately; draws are addressed by client, so block size has no effect."""
    own = view.own
    rows = [forge(g.unsqueeze(0), context.rng("attack", int(m))) for g, m in zip(own.delta, own.client, strict=True)]
    return replace(own, delta=torch.cat(rows))


def search_factor(
    craft: Callable[[float], Tensor], aggregate: Defence[Array], mean: Tensor, honest: Array, evaluations: int
) -> float:
    """The factor whose forged update moves the step furthest from the honest mean: argmax |aggregate(craft(x)) - mu|.

    A geometric grid of factors, then smaller and smaller steps around the best one; ties go to the smaller factor.
    """

    def damage(x: float) -> float:
        step = torch.as_tensor(aggregate(like(craft(x), honest)))
        size = norm(step.to(mean) - mean)
        return size if size < math.inf else -1.0

    grid = np.geomspace(LEAST, MOST, max(2, 2 * evaluations // 3)).tolist()
    tried = {x: damage(x) for x in grid}
    ratio = grid[1] / grid[0]
    for _ in range((evaluations - len(grid)) // 2):
        best, ratio = _best(tried), math.sqrt(ratio)
        tried |= {x: damage(x) for x in (best / ratio, best * ratio) if LEAST <= x <= MOST}
    return _best(tried)


def _best(tried: dict[float, float]) -> float:
    return max(sorted(tried), key=lambda x: tried[x])


def check_positive(attack: str, **values: float) -> None:
    """Raise if a setting is not finite and above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not 0.0 < value < math.inf:
            raise SettingError(attack, name, f"{value}; give a positive number")


def check_at_least(low: float, attack: str, **values: float) -> None:
    """Raise if a setting is not finite or below `low`."""
    for name, value in values.items():
        if not low <= value < math.inf:
            raise SettingError(attack, name, f"{value}; give a finite number of at least {low:g}")
