"""DRAG: modify every update towards a reference direction, by its degree of divergence.

Zhu, Zhang, Liu, Wang: DRAG: Divergence-based Adaptive Aggregation in Federated Learning on Non-IID Data,
arXiv 2309.01779.

    r^0 = mean_m g_m^0,    r^t = (1 - alpha) r^(t-1) + alpha Delta^(t-1)
    lambda_m = c (1 - cos(g_m, r^t))
    v_m = (1 - lambda_m) g_m + lambda_m |g_m| r^t / |r^t|
    Delta^t = mean_m v_m,    theta^(t+1) = theta^t + Delta^t

(The paper prints a minus in the last line and S^t in the closed form of r^t; both are misprints.) Given r the rule is
a map-reduce: a block folds to A = sum (1 - lambda) g, b = sum lambda |g| and a count, and Delta = (A + b rhat) / count.

`variant = "authors"` is the arithmetic of the authors' experiment code: lambda over the whole vector, |g_m| and r / |r|
for each tensor separately, and an average of past steps that starts at zero instead of at r^0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dragfl.aggregates._drag import Divergence, drag_metrics, fold_dragged
from dragfl.arithmetic import EPS, norm, row_norms, unit
from dragfl.lazy import Tensor, torch
from dragfl.schedules import Schedule, at, check_choices, check_range
from dragfl.types import FederationInfo, Need, Partial, RoundContext, RoundInputs, Updates, spans


@dataclass(frozen=True)
class DragState:
    r: Tensor | None = None  # the reference direction of the coming round; None before the first one


@dataclass(frozen=True)
class DragPlan:
    r: Tensor | None
    rhat: Tensor | None  # r / |r|; None: no direction, so no update is modified this round
    c: float
    alpha: float
    segments: tuple[int, ...]  # boundaries of the pieces with their own |g_m| and rhat: (0, d) in the paper's form


@dataclass(frozen=True)
class Drag:
    """Modifies each update towards a reference direction, by its divergence from it.

    | argument | symbol |
    |---|---|
    | c | c in [0, 1]; a number or a schedule |
    | alpha | alpha in (0, 1]; a number or a schedule |
    | divergence | the form of lambda: `linear`, `angle`, `shallow` |
    | variant | `paper`, or `authors` for the arithmetic of their code |
    | bootstrap | round 0: `two_pass` takes r^0 = mean; `fedavg` modifies nothing and takes r^1 = Delta^0 |
    """

    c: float | Schedule = 0.25
    alpha: float | Schedule = 1.0
    divergence: Divergence = "linear"
    variant: Literal["paper", "authors"] = "paper"
    bootstrap: Literal["two_pass", "fedavg"] = "two_pass"
    paper: ClassVar[str] = "Zhu et al. 2023, arXiv 2309.01779"

    def __post_init__(self) -> None:
        check_range("drag", "c", self.c, 0.0, 1.0)
        check_range("drag", "alpha", self.alpha, 0.0, 1.0, open_low=True)
        check_choices("drag", self)

    def init(self, info: FederationInfo) -> DragState:
        return DragState()

    def reference(self, state: DragState) -> Tensor | None:
        return state.r

    def needs(self, state: DragState) -> frozenset[Need]:
        return frozenset({"mean"}) if state.r is None and self.bootstrap == "two_pass" else frozenset()

    def begin(self, state: DragState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> DragPlan:
        r = inputs.mean if state.r is None else state.r
        segments = info.segments if self.variant == "authors" else (0, info.dim)
        return DragPlan(r, None if r is None else unit(r), at(self.c, context.t), at(self.alpha, context.t), segments)

    def fold(self, plan: DragPlan, block: Updates) -> Partial:
        partial, lam = fold_dragged(block, plan.rhat, plan.c, self.divergence, normalise=False)
        if len(plan.segments) == 2:
            return partial
        b = torch.stack([lam @ row_norms(block.delta[:, start:end]) for start, end in spans(plan.segments)])
        return replace(partial, sums={**partial.sums, "b": b})

    def finish(
        self, state: DragState, plan: DragPlan, partial: Partial
    ) -> tuple[Tensor, DragState, Mapping[str, float]]:
        step = partial.sums["A"].double() / partial.count
        if plan.r is not None and plan.rhat is not None:
            b = (partial.sums["b"].double() / partial.count).reshape(-1).tolist()
            for (start, end), b_piece in zip(spans(plan.segments), b, strict=True):
                rhat = plan.rhat if len(b) == 1 else unit(plan.r[start:end])
                if rhat is not None:
                    step[start:end].add_(rhat, alpha=b_piece)
        step = step.float()
        return step, DragState(self._next_reference(state, plan, step, partial)), drag_metrics(partial, plan.rhat)

    def _next_reference(self, state: DragState, plan: DragPlan, step: Tensor, partial: Partial) -> Tensor | None:
        """r^(t+1) = (1 - alpha) r^t + alpha Delta^t, and the cases that the paper leaves open."""
        if plan.r is None or plan.rhat is None:  # no direction yet, or r vanished: start from the mean update
            return partial.mean if norm(partial.mean) > EPS else state.r
        r = plan.r.float()  # the mean of a chain's rows is a sum, in float64
        if not norm(step) > EPS:  # a zero step must not erase the direction
            return r
        if self.variant == "authors" and state.r is None:  # their average starts at zero, without r^0
            return plan.alpha * step
        return step if plan.alpha == 1.0 else torch.lerp(r, step, plan.alpha)
