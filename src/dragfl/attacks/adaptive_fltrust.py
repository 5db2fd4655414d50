"""The adaptive attack on FLTrust: directions that keep the server's trust and pull against the clean step.

X. Cao, M. Fang, J. Liu, N. Z. Gong, FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021.

With unit vectors e_i of the honest updates, e'_j of the forged ones, e_0 of the root update g_0, c = cos(e, e_0) and s
the sign of the clean step, the attackers climb

    h(e') = -|g_0| s . [sum_j ReLU(c'_j) e'_j + sum_i ReLU(c_i) e_i] / [sum_j ReLU(c'_j) + sum_i ReLU(c_i)]

(up to the clean step, a constant) one attacker at a time, by differences along random directions u ~ N(0, variance I):

    e' <- unit(e' + step (h(e' + smoothing u) - h(e')) / smoothing u)

They start from the attack on the trimmed mean and send |g_0| e', the best they met. A start without trust (c' <= 0) has
no slope, and h would stay as it is: it is first turned towards e_0, to c' = 0.1.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from dragfl.arithmetic import EPS
from dragfl.arrays import Array, like, matrix, vector
from dragfl.attacks.common import check_positive, clean_rows, forge_from_clean, visible_updates
from dragfl.attacks.fang_trim import fang_trim
from dragfl.lazy import Tensor, torch
from dragfl.types import Knowledge, NoState, RoundContext, Updates, View, no_state

EDGE = 0.1  # the cosine to the root update of a start that was turned


@dataclass(frozen=True)
class Trusted:
    """What h needs of the honest side: h is a function of s.e' and e_0.e' of each attacker alone."""

    e0: Tensor
    s: Tensor
    along: float  # s . sum_i ReLU(c_i) e_i
    trust: float  # sum_i ReLU(c_i)
    size: float  # |g_0|

    def parts(self, e: Tensor) -> tuple[float, float]:
        """(ReLU(c') s.e', ReLU(c')) of one forged update of any length."""
        length = float(torch.linalg.vector_norm(e))
        trust = max(0.0, float(e @ self.e0)) / max(length, EPS)
        return trust * float(e @ self.s) / max(length, EPS), trust

    def turned(self, E: Tensor) -> Tensor:
        """Unit rows (f, d); those that are not trusted turned towards e_0."""
        c = (E @ self.e0).unsqueeze(1)
        off = math.sqrt(1.0 - EDGE**2) * _directions(E - c * self.e0)
        return torch.where(c > 0.0, E, _directions(EDGE * self.e0 + off))

    def h(self, found: list[tuple[float, float]]) -> float:
        """h, from the parts of every attacker."""
        along, trust = self.along + sum(a for a, _ in found), self.trust + sum(c for _, c in found)
        return -self.size * along / trust if trust > EPS else 0.0


def _directions(X: Tensor) -> Tensor:
    sizes = torch.linalg.vector_norm(X, dim=1, keepdim=True)
    return torch.where(sizes > EPS, X / sizes.clamp_min(EPS), 0.0)


def trusted(X: Tensor, clean: Tensor, root: Tensor) -> Trusted:
    """The honest side of h: honest rows X, all clean rows for the sign of the step, the root update; in float64."""
    size = float(torch.linalg.vector_norm(root))
    e0 = root / max(size, EPS)
    E, every = _directions(X), _directions(clean)
    s = torch.sign((every @ e0).clamp_min(0.0) @ every)
    c = (E @ e0).clamp_min(0.0)
    return Trusted(e0, s, float(c @ (E @ s)), float(c.sum()), size)


def _climbed(
    side: Trusted, E: Tensor, rng: np.random.Generator, rounds: int, queries: int, sizes: tuple[float, float, float]
) -> Tensor:
    """The best directions (f, d) met while each attacker in turn climbs h from its row of E."""
    step, smoothing, variance = sizes
    found = [side.parts(e) for e in E]
    best, top = E.clone(), side.h(found)
    for j in [*range(len(E))] * rounds:
        for _ in range(queries):
            u = torch.from_numpy(rng.normal(0.0, math.sqrt(variance), E.shape[1])).to(E)
            tried = [*found[:j], side.parts(E[j] + smoothing * u), *found[j + 1 :]]
            slope = (side.h(tried) - side.h(found)) / smoothing
            E[j] = _directions((E[j] + step * slope * u).unsqueeze(0))[0]
            found[j] = side.parts(E[j])
            if side.h(found) > top:
                best, top = E.clone(), side.h(found)
    return best


def adaptive_fltrust(
    honest: Array,
    f: int,
    root: Array,
    rng: np.random.Generator,
    *,
    own: Array | None = None,
    rounds: int = 10,
    queries: int = 10,
    step: float = 0.01,
    smoothing: float = 0.005,
    variance: float = 0.5,
) -> Array:
    """|g_0| e' for each of the f attackers, e' by zeroth-order ascent of h from the attack on the trimmed mean.

    `own` (f, d), the attackers' clean updates, take part in the clean step if they are given. Each of `rounds` passes
    over the attackers asks `queries` times for h along a random direction.
    """
    X = clean_rows("adaptive_fltrust", honest, f)
    r = vector("adaptive_fltrust", "root", root, X).double()
    clean = X if own is None else torch.cat([X, matrix("adaptive_fltrust", own)])
    side = trusted(X.double(), clean.double(), r)
    start = _directions(fang_trim(X.double(), f, rng, own=None if own is None else clean[len(X) :].double()))
    best = _climbed(side, side.turned(start), rng, rounds, queries, (step, smoothing, variance))
    return like((side.size * best).to(X.dtype), honest)


@dataclass(frozen=True)
class AdaptiveFLTrust:
    """Sends updates that FLTrust trusts and that pull against the clean step.

    If the rule has no reference, the mean honest update is used.

    | argument | symbol |
    |---|---|
    | rounds | V |
    | queries | Q |
    | step | learning rate of the ascent |
    | smoothing | gamma |
    | variance | of the random directions |
    """

    rounds: int = 10
    queries: int = 10
    step: float = 0.01
    smoothing: float = 0.005
    variance: float = 0.5

    knowledge: ClassVar[Knowledge] = "white_box"
    init = no_state

    def __post_init__(self) -> None:
        check_positive("adaptive_fltrust", **asdict(self))

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        own = visible_updates(View(view.own)) if view.honest is not None and len(view.honest) else None

        def forge(clean: Tensor, f: int) -> Tensor:
            root = clean.mean(0) if view.reference is None else view.reference
            return adaptive_fltrust(clean, f, root, context.rng("attack"), own=own, **asdict(self))

        return forge_from_clean(view, forge), state
