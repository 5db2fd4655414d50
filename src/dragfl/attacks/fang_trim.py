"""The attack on the trimmed mean, and on the median: beyond the honest values of every coordinate, on the wrong side.

M. Fang, X. Cao, J. Jia, N. Z. Gong, Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, USENIX
Security 2020. s = sign of the sum of clean updates, hi and lo the largest and smallest honest value of a coordinate.

    full:     s < 0: uniform in [hi, beta hi] if hi > 0, else in [hi, hi/beta]
              s > 0: uniform in [lo/beta, lo] if lo > 0, else in [beta lo, lo]
    partial:  s < 0: uniform in [mu + 3 sigma, mu + 4 sigma];   s > 0: in [mu - 4 sigma, mu - 3 sigma]
    s = 0:    mu

mu and sigma are of the attackers' own clean updates. The authors act on model weights theta + g ("weights"); FLTrust
and others apply the same formulas to updates ("update"), where intervals scale with |g| instead of |theta + g|. The
partial form is the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dragfl.arrays import Array, like, matrix, vector
from dragfl.attacks.common import (
    SampleKnowledge,
    check_at_least,
    clean_rows,
    forge_from_clean,
    moments,
    visible_updates,
)
from dragfl.attacks.fang_krum import Knows
from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice, check_choices
from dragfl.types import NoState, RoundContext, Strength, Updates, View, no_state

Space = Literal["update", "weights"]


def trim_interval(X: Tensor, s: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """(low, high) of every coordinate with full knowledge of the honest rows X."""
    hi, lo = X.amax(0), X.amin(0)
    far_hi = torch.where(hi > 0, hi * beta, hi / beta)
    far_lo = torch.where(lo > 0, lo / beta, lo * beta)
    mu = X.mean(0)
    low = torch.where(s < 0, hi, torch.where(s > 0, far_lo, mu))
    return low, torch.where(s < 0, far_hi, torch.where(s > 0, lo, mu))


def partial_interval(X: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """(low, high) of every coordinate, from the attackers' own clean rows X."""
    mu, sigma = moments(X)
    near, far = mu - 3.0 * s * sigma, mu - 4.0 * s * sigma
    return torch.minimum(near, far), torch.maximum(near, far)


def fang_trim(
    honest: Array,
    f: int,
    rng: np.random.Generator,
    knows: Knows = "full",
    *,
    own: Array | None = None,
    beta: float = 2.0,
    space: Space = "update",
    w: Array | None = None,
) -> Array:
    """Numbers just beyond the honest ones, drawn for each of the f attackers.

    `honest` (h, d) are the honest updates; with `knows = "partial"` the attackers' own clean ones. `own` (f, d) take
    part in the direction s if they are given. `space = "weights"` needs the model w (d,) that was sent out.
    """
    X = clean_rows("fang_trim", honest, f)
    check_choice("fang_trim", "knows", knows, get_args(Knows))
    check_choice("fang_trim", "space", space, get_args(Space))
    check_at_least(1, "fang_trim", beta=beta)
    s = torch.sign(X.sum(0) if own is None else X.sum(0) + matrix("fang_trim", own).sum(0))
    if knows == "partial":
        low, high = partial_interval(X, s)
    elif space == "update":
        low, high = trim_interval(X, s, beta)
    elif w is None:
        raise SpecError("fang_trim: space='weights' needs the model that was sent out; give w")
    else:
        theta = vector("fang_trim", "w", w, X)
        low, high = (edge - theta for edge in trim_interval(X + theta, s, beta))
    drawn = torch.from_numpy(rng.random((f, X.shape[1]))).to(X)
    return like(low + drawn * (high - low), honest)


@dataclass(frozen=True)
class FangTrim:
    """Sends values beyond the honest range of every coordinate, against trimmed mean and median.

    | argument | symbol |
    |---|---|
    | knowledge | `omniscient` is the authors' full knowledge, `colluding` their partial knowledge |
    | beta | beta >= 1 |
    | space | intervals of `update` or of model `weights` |
    """

    knowledge: SampleKnowledge = "omniscient"
    beta: float = 2.0
    space: Space = "update"

    init = no_state

    def __post_init__(self) -> None:
        check_choices("fang_trim", self)
        check_at_least(1, "fang_trim", beta=self.beta)

    @property
    def strength(self) -> Strength | None:
        """The setting to tune; partial knowledge has no beta."""
        return ("beta", 1.25, 20.0) if self.knowledge == "omniscient" else None

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        draws = context.rng("attack")

        def forge(clean: Tensor, f: int) -> Tensor:
            if view.honest is None:
                return fang_trim(clean, f, draws, "partial")
            own = visible_updates(View(view.own))
            return fang_trim(clean, f, draws, own=own, beta=self.beta, space=self.space, w=view.w)

        return forge_from_clean(view, forge), state
