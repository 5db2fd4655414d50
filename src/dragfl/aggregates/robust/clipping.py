"""Norm clipping and centered clipping: no update moves the step farther than a radius.

Norm clipping: Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, arXiv 1911.07963, 2019.

    Delta = mean_i g_i min(1, C / |g_i|)  +  N(0, sigma^2)

Centered clipping: Karimireddy, He, Jaggi: Learning from History for Byzantine Robust Optimization, ICML 2021.

    v <- v + mean_i (g_i - v) min(1, tau / |g_i - v|), L times, from the aggregate of the round before;  Delta = v

So |Delta| <= C, and |Delta - v| <= L tau, whatever is sent. Without a radius, it is the median of |g_i|, or of
|g_i - v|: at most the largest honest one as long as most are honest. With a fixed radius (and L = 1) both stream.
Suspicion is the length that is clipped: |g_i|, or |g_i - v|.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.aggregates.robust.contract import check_settings
from dragfl.aggregates.robust.gram import blend
from dragfl.aggregates.robust.pipeline import distances_from
from dragfl.aggregates.robust.rule import aggregate_extras
from dragfl.arithmetic import row_norms
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


def factors(lengths: Tensor, radius: float | None) -> Tensor:
    """(n,) min(1, radius / length); the median length as radius where none is given. A zero length keeps its 1."""
    limit = lengths.quantile(0.5) if radius is None else torch.tensor(radius, dtype=torch.float64)
    return torch.where(lengths > limit, limit / lengths.clamp_min(1e-300), 1.0)


def clipped_mean(X: Tensor, norms: Tensor, radius: float | None) -> Tensor:
    """(d,) mean of the rows clipped to the radius."""
    return blend(factors(norms, radius).unsqueeze(0) / len(X), X, float(norms.max()))[0]


def _clip_extra(name: str, rows: Tensor) -> Tensor:
    return clipped_mean(rows, row_norms(rows), None)


@dataclass(frozen=True)
class NormClipping:
    """Takes the mean of updates clipped to a length.

    | argument | symbol |
    |---|---|
    | radius | C; the median length of the round by default |
    | noise | sigma, standard deviation of noise added to every number of the step |
    """

    radius: float | None = None
    noise: float = 0.0
    name: ClassVar[str] = "norm_clipping"
    paper: ClassVar[str] = "Sun et al. 2019"

    def __post_init__(self) -> None:
        check_range("norm_clipping", "noise", self.noise, 0.0, 1e9)
        if self.radius is not None:
            check_range("norm_clipping", "radius", self.radius, 0.0, 1e30, open_low=True)

    init = no_state

    @property
    def aggregates_extras(self) -> bool:
        """With the median norm as radius, each extra is clipped to its own median norm, at most the largest honest one.

        A fixed radius is in the unit of the updates, so it bounds no extra.
        """
        return self.radius is None

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset({"all"}) if self.radius is None else frozenset()

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> RoundContext:
        return context

    def fold(self, plan: RoundContext, block: Updates) -> Partial:
        clipped = clipped_mean(block.delta, block.norm, self.radius).double() * len(block)
        extra = aggregate_extras(block, _clip_extra) if self.aggregates_extras else None
        return Partial.of(block, {"clipped": clipped}, {"norm": block.norm, "suspicion": block.norm}, extra=extra)

    def finish(
        self, state: NoState, plan: RoundContext, partial: Partial
    ) -> tuple[Tensor, NoState, Mapping[str, float]]:
        step = partial.sums["clipped"] / partial.count
        if self.noise > 0.0:
            normal = plan.rng("robust", self.name).standard_normal(len(step), np.float32)
            step = step + self.noise * torch.from_numpy(normal).to(step)
        return step.float(), state, {}


@dataclass(frozen=True)
class Centre:
    v: Tensor  # the aggregate of the round before; zero at first


@dataclass(frozen=True)
class CenteredClipping:
    """Clips updates around the aggregate of the previous round.

    | argument | symbol |
    |---|---|
    | radius | tau; the median distance from v by default |
    | iterations | L |
    """

    radius: float | None = None
    iterations: int = 1
    name: ClassVar[str] = "centered_clipping"
    paper: ClassVar[str] = "Karimireddy et al. 2021"
    aggregates_extras: ClassVar[bool] = False  # its centre v is an update; there is none for an extra

    def __post_init__(self) -> None:
        check_settings(self)
        if self.radius is not None:
            check_range("centered_clipping", "radius", self.radius, 0.0, 1e30, open_low=True)

    def init(self, info: FederationInfo) -> Centre:
        return Centre(torch.zeros(info.dim, device=info.device))

    def needs(self, state: Centre) -> frozenset[Need]:
        return frozenset() if self.radius is not None and self.iterations == 1 else frozenset({"all"})

    def begin(self, state: Centre, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> Centre:
        return state

    def fold(self, plan: Centre, block: Updates) -> Partial:
        clipped, kept, lengths = clip_around(block.delta, block.norm, plan.v, self.radius, self.iterations)
        sums = {"clipped": clipped.double() * len(block), "kept": kept * len(block)}
        return Partial.of(block, sums, {"norm": block.norm, "suspicion": lengths})

    def finish(self, state: Centre, plan: Centre, partial: Partial) -> tuple[Tensor, Centre, Mapping[str, float]]:
        kept = float(partial.sums["kept"]) / partial.count
        v = ((1.0 - kept) * plan.v.double() + partial.sums["clipped"] / partial.count).float()
        return v, Centre(v), {"kept_mean": kept}


def clip_around(
    X: Tensor, norms: Tensor, v: Tensor, radius: float | None, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(b, k, |g_i - v|) such that v after all iterations is (1 - k) v + b.

    An iteration keeps v in the span of the first v and the updates: v_l = a v + beta X, a = 1 - sum beta.
    """
    beta = torch.zeros_like(norms)
    largest = float(norms.max())
    centre, mixed, first = v, torch.zeros_like(v), torch.zeros_like(norms)
    for i in range(iterations):
        lengths = distances_from(X, centre)
        first = lengths if i == 0 else first
        kept = factors(lengths, radius) / len(X)
        beta = (1.0 - kept.sum()) * beta + kept
        mixed = blend(beta.unsqueeze(0), X, largest)[0]
        centre = ((1.0 - beta.sum()) * v.double() + mixed.double()).to(v.dtype)
    return mixed, beta.sum(), first
