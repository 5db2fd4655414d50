"""The attack on Krum: copies of one update, as far from the clean step as Krum still selects it.

M. Fang, X. Cao, J. Jia, N. Z. Gong, Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, USENIX
Security 2020.

    b = -lambda s,   s = the sign of the step without attack
    lambda starts at  min_i sum_{n-f-2 nearest j} |g_i - g_j| / ((n - 2f - 1) sqrt(d)) + max_i |g_i| / sqrt(d)
    and is halved until Krum picks b, or lambda is below `min_lambda`

Attackers who know only their own f clean updates take these for the honest ones, and add 1, 2, ... copies of b until
Krum selects one. (The authors put the copies within a small distance of each other; here they are equal.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from dragfl.arithmetic import norm, row_dots, row_norms
from dragfl.arrays import Array, matrix
from dragfl.attacks.common import SampleKnowledge, check_positive, clean_rows, copies, forge_from_clean, visible_updates
from dragfl.attacks.min_max import squared_distances
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice, check_choices
from dragfl.types import NoState, RoundContext, Updates, View, no_state

Knows = Literal["full", "partial"]
Start = Literal["krum", "mean"]


def krum_scores(distances: Tensor, neighbours: int) -> Tensor:
    """(n,) sums of the squared distances (n, n) to so many nearest others."""
    nearest = distances.sort(1).values[:, 1:]  # the first is the row itself
    return nearest[:, : max(1, neighbours)].sum(1)


def _is_selected(among: Tensor, forged: Tensor, m: int, neighbours: int) -> bool:
    """Whether Krum selects one of m copies at squared distances `forged` (h,) from rows with distances `among`."""
    h = len(among)
    distances = torch.zeros(h + m, h + m, dtype=among.dtype, device=among.device)
    distances[:h, :h] = among
    distances[:h, h:], distances[h:, :h] = forged.unsqueeze(1), forged
    scores = krum_scores(distances, neighbours)
    return bool(scores[h] < scores[:h].min())


def fang_krum(
    honest: Array,
    f: int,
    knows: Knows = "full",
    *,
    own: Array | None = None,
    direction: Start = "krum",
    min_lambda: float = 1e-5,
) -> Array:
    """-lambda sign(step without attack), from all f attackers, lambda the largest found with which Krum picks it.

    `honest` (h, d) are the honest updates; with `knows = "partial"` the attackers' own clean ones. `own` (f, d) take
    part in the step without attack if they are given; it is that of Krum, or the mean.
    """

    X = clean_rows("fang_krum", honest, f)
    check_choice("fang_krum", "knows", knows, get_args(Knows))
    check_choice("fang_krum", "direction", direction, get_args(Start))
    clean = X if own is None else torch.cat([X, matrix("fang_krum", own)])
    h, d = X.shape
    k = h - 2  # n - f - 2, whoever the f are
    step = clean.mean(0)
    if direction == "krum" and knows == "full":
        step = clean[int(krum_scores(squared_distances(clean), len(clean) - f - 2).argmin())]
    s = torch.sign(step)
    distances, sizes, along = squared_distances(X), row_norms(X), row_dots(X, s)
    nearest = float(distances.sqrt().sort(1).values[:, 1 : max(1, k) + 1].sum(1).min())
    for m in [f] if knows == "full" else range(1, h + 2):
        lam = (nearest / max(1, h - m - 1) + float(sizes.max())) / math.sqrt(d)
        while lam >= min_lambda:
            forged = (sizes.square() + 2.0 * lam * along + (lam * norm(s)) ** 2).clamp_min(0.0)  # |g_i + lam s|^2
            if _is_selected(distances, forged, m, k):
                return copies(-lam * s, f, honest)
            lam /= 2.0
    return copies(-lam * s, f, honest)


@dataclass(frozen=True)
class FangKrum:
    """Sends the largest deviation that Krum still selects: b = -lambda s.

    | argument | symbol |
    |---|---|
    | knowledge | `omniscient` is the authors' full knowledge, `colluding` their partial knowledge |
    | direction | whose sign is s: the step of `krum` or the `mean`, without attack |
    | min_lambda | lambda is not halved below this |
    """

    knowledge: SampleKnowledge = "omniscient"
    direction: Start = "krum"
    min_lambda: float = 1e-5

    init = no_state

    def __post_init__(self) -> None:
        check_choices("fang_krum", self)
        check_positive("fang_krum", min_lambda=self.min_lambda)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        def forge(clean: Tensor, f: int) -> Tensor:
            if view.honest is None:
                return fang_krum(clean, f, "partial", min_lambda=self.min_lambda)
            own = visible_updates(View(view.own))
            return fang_krum(clean, f, own=own, direction=self.direction, min_lambda=self.min_lambda)

        return forge_from_clean(view, forge), state
