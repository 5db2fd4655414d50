"""BR-DRAG: DRAG with a trusted reference and updates normalised to its length, for clients that may lie.

Zhu, Zhang, Liu, Wang, arXiv 2309.01779, section "Defending against Byzantine attacks" (named BR-DRAG by Xiao, Zhu,
Zhang, Ni, Wang, arXiv 2601.06903).

    r = theta_root^U - theta     U local steps on the server's root data
    lambda_m = c (1 - cos(g_m, r))
    v_m = (1 - lambda_m) (|r| / |g_m|) g_m + lambda_m r,    Delta = mean_m v_m

For c <= 1/2 every |v_m| <= |r|, so |Delta| <= |r| whatever the clients send. A zero update gives v_m = 0 and still
counts: a free rider is not turned into r. A block folds to A = sum (1 - lambda) g / |g|, b = sum lambda, a count.

`variant = "authors"` does all of it tensor by tensor, as the authors' experiment code does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from dragfl.aggregates._divergence import Divergence
from dragfl.aggregates._drag import drag_metrics, fold_dragged
from dragfl.arithmetic import EPS, norm, unit
from dragfl.lazy import Tensor, torch
from dragfl.schedules import Schedule, at, check_choice, check_range
from dragfl.types import (
    FederationInfo,
    Need,
    Partial,
    Plan,
    RoundContext,
    RoundInputs,
    State,
    Updates,
    no_state,
    spans,
)


@dataclass(frozen=True)
class BRDragPlan:
    r: Tensor
    rhat: Tensor | None  # r / |r| over the whole vector; None where r vanished
    c: float
    segments: tuple[int, ...]  # the pieces treated one by one: (0, d) in the paper's form


@dataclass(frozen=True)
class BRDrag:
    """BR-DRAG's aggregate.

    | argument | symbol |
    |---|---|
    | c | c in [0, 1]; a number or a schedule |
    | divergence | the form of lambda: `linear`, `angle`, `shallow` |
    | variant | `paper`, or `authors` for tensor by tensor |
    """

    c: float | Schedule = 0.25
    divergence: Divergence = "linear"
    variant: Literal["paper", "authors"] = "paper"

    def __post_init__(self) -> None:
        check_range("br_drag", "c", self.c, 0.0, 1.0)
        check_choice("br_drag", "divergence", self.divergence, get_args(Divergence))
        check_choice("br_drag", "variant", self.variant, ("paper", "authors"))

    init = no_state

    def needs(self, state: State) -> frozenset[Need]:
        return frozenset({"root"})

    def begin(self, state: State, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> Plan:

        if inputs.root is None:
            raise ValueError("br_drag needs the root update; give `root` to begin()")
        segments = info.segments if self.variant == "authors" else (0, info.dim)
        return BRDragPlan(inputs.root, unit(inputs.root), at(self.c, context.t), segments)

    def fold(self, plan: Plan, block: Updates) -> Partial:
        whole, _ = fold_dragged(block, plan.rhat, plan.c, self.divergence, normalise=True)
        if len(plan.segments) == 2:
            return replace(whole, sums={**whole.sums, "b": whole.sums["b"].reshape(1)})
        return self._by_tensor(plan, block, whole)

    def _by_tensor(self, plan: Plan, block: Updates, whole: Partial) -> Partial:
        """The authors' form: cosine, norm and lambda of each tensor for itself; lambda is logged as their mean."""

        parts = [
            fold_dragged(
                replace(block, delta=block.delta[:, a:z], extra={}),
                unit(plan.r[a:z]),
                plan.c,
                self.divergence,
                normalise=True,
            )
            for a, z in spans(plan.segments)
        ]
        sums = {
            **whole.sums,
            "A": torch.cat([part.sums["A"] for part, _ in parts]),
            "b": torch.stack([part.sums["b"] for part, _ in parts]),
        }
        mean_lambda = torch.stack([lam for _, lam in parts]).mean(0)
        return replace(whole, sums=sums, per_client={**whole.per_client, "divergence": mean_lambda})

    def finish(self, state: State, plan: Plan, partial: Partial) -> tuple[Tensor, State, Mapping[str, float]]:

        A = partial.sums["A"].double()
        step = torch.zeros_like(A)  # and zero it stays where the reference vanished
        lengths = []
        for (start, end), b in zip(spans(plan.segments), partial.sums["b"].double(), strict=True):
            r = plan.r[start:end].double()
            lengths.append(norm(r))
            if plan.rhat is not None and lengths[-1] > EPS:
                step[start:end] = lengths[-1] * A[start:end] + b * r
        metrics = {**drag_metrics(partial, plan.rhat), "reference_norm": math.hypot(*lengths)}
        return (step / partial.count).float(), state, metrics
