"""BR-DRAG: Byzantine-resilient DRAG, with a trusted reference direction and updates normalised to its length.

Zhu, Zhang, Liu, Wang, arXiv 2309.01779, section "Defending against Byzantine attacks" (named BR-DRAG by Xiao, Zhu,
Zhang, Ni, Wang, arXiv 2601.06903).

    r = theta_root^U - theta     U local steps on the server's root data
    lambda_m = c (1 - cos(g_m, r))
    v_m = (1 - lambda_m) (|r| / |g_m|) g_m + lambda_m r,    Delta = mean_m v_m

For c <= 1/2 every |v_m| <= |r|, so |Delta| <= |r| whatever the clients send. A zero update counts with v_m = 0, so a
free rider does not contribute r. A block folds to A = sum (1 - lambda) g / |g|, b = sum lambda and a count, and
Delta = (|r| A + b r) / count.

`variant = "authors"` treats every tensor separately, as the authors' experiment code does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dragfl.aggregates._drag import Divergence, drag_metrics, fold_dragged
from dragfl.arithmetic import EPS, norm, unit
from dragfl.lazy import Tensor, torch
from dragfl.schedules import Schedule, at, check_choices, check_range
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state, spans


@dataclass(frozen=True)
class BRDragPlan:
    r: Tensor
    rhat: Tensor | None  # r / |r| over the whole vector; None: r is zero
    c: float
    segments: tuple[int, ...]  # boundaries of the pieces treated separately: (0, d) in the paper's form


@dataclass(frozen=True)
class BRDrag:
    """Applies DRAG to normalised updates, with a trusted reference trained on root data.

    | argument | symbol |
    |---|---|
    | c | c in [0, 1]; a number or a schedule |
    | divergence | the form of lambda: `linear`, `angle`, `shallow` |
    | variant | `paper`, or `authors` for every tensor separately |
    """

    c: float | Schedule = 0.25
    divergence: Divergence = "linear"
    variant: Literal["paper", "authors"] = "paper"
    paper: ClassVar[str] = "Zhu et al. 2023, arXiv 2309.01779"
    aggregates_extras: ClassVar[bool] = False  # the root update is a reference for updates, not for extras

    def __post_init__(self) -> None:
        check_range("br_drag", "c", self.c, 0.0, 1.0)
        check_choices("br_drag", self)

    init = no_state

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset({"root"})

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> BRDragPlan:
        if inputs.root is None:
            raise ValueError("br_drag needs the root update; give `root` to begin()")
        segments = info.segments if self.variant == "authors" else (0, info.dim)
        return BRDragPlan(inputs.root, unit(inputs.root), at(self.c, context.t), segments)

    def fold(self, plan: BRDragPlan, block: Updates) -> Partial:
        whole, _ = fold_dragged(block, plan.rhat, plan.c, self.divergence, normalise=True)
        if len(plan.segments) == 2:
            return replace(whole, sums={**whole.sums, "b": whole.sums["b"].reshape(1)})
        return self._by_tensor(plan, block, whole)

    def _by_tensor(self, plan: BRDragPlan, block: Updates, whole: Partial) -> Partial:
        """The authors' form: cosine, norm and lambda of each tensor separately; the mean lambda is logged."""
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

    def finish(self, state: NoState, plan: BRDragPlan, partial: Partial) -> tuple[Tensor, NoState, Mapping[str, float]]:
        A = partial.sums["A"].double()
        step = torch.zeros_like(A)  # stays zero where the reference is zero
        lengths = []
        for (start, end), b in zip(spans(plan.segments), partial.sums["b"].double(), strict=True):
            r = plan.r[start:end].double()
            lengths.append(norm(r))
            if plan.rhat is not None and lengths[-1] > EPS:
                step[start:end] = lengths[-1] * A[start:end] + b * r
        metrics = {**drag_metrics(partial, plan.rhat), "reference_norm": math.hypot(*lengths)}
        return (step / partial.count).float(), state, metrics
