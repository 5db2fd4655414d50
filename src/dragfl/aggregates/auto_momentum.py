"""Auto momentum: server momentum whose coefficient is measured in every round. It has no setting to tune.

A rule of dragfl, not of a paper. gbar is the mean update of the S clients of a round, and the reference r is a moving
average of past mean updates:

    kappa = max(|gbar|^2 / mean_m |g_m|^2, 1/S)      coherence of the updates: 1 if equal, 1/S if orthogonal
    rho   = <gbar, r> / |r|^2, clamped to [0, 1]     the share of r that the new updates confirm
    Delta = gbar + (1/kappa - 1) rho r
    r    <- r + kappa (gbar - r),    r^0 = gbar^0

For rho = 1 and a constant kappa this is FedAvgM with beta = 1 - kappa: its m is r / kappa. FedExP multiplies all of
gbar, the noise of the round included, by 1 / (2 kappa). Here only rho r, the projection of gbar on r, is multiplied, by
1 / kappa; the noise of one round is almost orthogonal to r. If r itself is mostly noise, rho is near 0 and Delta near
gbar. If the last steps were too long, <gbar, r> is negative and Delta = gbar.

From |rho r| <= |gbar| and <gbar, rho r> >= 0 follow |gbar| <= |Delta| <= |gbar| / kappa <= S |gbar| and
<Delta, gbar> >= |gbar|^2. Delta is zero exactly where gbar is, so there is no bias like that of DRAG (docs/drift.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dragfl.arithmetic import EPS, dot, norm
from dragfl.lazy import Tensor
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates


@dataclass(frozen=True)
class ReferenceState:
    r: Tensor | None = None  # None before the first round with an update


@dataclass(frozen=True)
class AutoMomentum:
    """Adds momentum by the measured coherence of the updates; no settings."""

    def init(self, info: FederationInfo) -> ReferenceState:
        return ReferenceState()

    def reference(self, state: ReferenceState) -> Tensor | None:
        return state.r

    def needs(self, state: ReferenceState) -> frozenset[Need]:
        return frozenset()

    def begin(self, state: ReferenceState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> NoState:
        return NoState()

    def fold(self, plan: NoState, block: Updates) -> Partial:
        return Partial.of(block, {"squares": block.norm.square().sum()}, {"norm": block.norm})

    def finish(
        self, state: ReferenceState, plan: NoState, partial: Partial
    ) -> tuple[Tensor, ReferenceState, Mapping[str, float]]:
        mean, r = partial.mean, state.r
        size = norm(mean)
        if not size > EPS:  # a zero mean must not erase the direction
            return mean, state, {"coherence": 0.0, "confirmed": 0.0}
        coherence = size**2 * partial.count / float(partial.sums["squares"])
        kappa = min(1.0, max(coherence, 1.0 / partial.count))
        length = 0.0 if r is None else norm(r)
        if r is None or not length > EPS:
            return mean, ReferenceState(mean), {"coherence": kappa, "confirmed": 0.0}
        rho = min(1.0, max(0.0, dot(mean, r) / length**2))
        step = mean + (1.0 / kappa - 1.0) * rho * r
        return step, ReferenceState(r + kappa * (mean - r)), {"coherence": kappa, "confirmed": rho}
