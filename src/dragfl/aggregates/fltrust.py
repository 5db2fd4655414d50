"""FLTrust: trust an update as far as it points along the server's own.

Cao, Fang, Liu, Gong: FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021.

    g_0 = the server's update on its root data
    TS_m = max(0, cos(g_m, g_0))
    Delta = |g_0| sum_m TS_m g_m / |g_m| / sum_m TS_m

A zero update has trust 0. If no client is trusted, the round is skipped, or follows g_0 with `on_no_trust = "root"`.
A block folds to sum TS g / |g| and sum TS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.arithmetic import EPS, combine, cosines, inverse_norms, norm, row_dots, unit
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choices
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


@dataclass(frozen=True)
class FLTrustPlan:
    root: Tensor
    unit: Tensor | None


@dataclass(frozen=True)
class FLTrust:
    """Weights each update by its cosine to the server's own update on root data.

    | argument | symbol |
    |---|---|
    | on_no_trust | what to do when sum TS = 0: `skip` the round or step along the `root` update |
    """

    on_no_trust: Literal["skip", "root"] = "skip"
    aggregates_extras: ClassVar[bool] = False  # the root update is a reference for updates, not for extras
    paper: ClassVar[str] = "Cao et al. 2021"

    def __post_init__(self) -> None:
        check_choices("fltrust", self)

    init = no_state

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset({"root"})

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> FLTrustPlan:
        if inputs.root is None:
            raise ValueError("fltrust needs the root update; give `root` to begin()")
        return FLTrustPlan(inputs.root, unit(inputs.root))

    def fold(self, plan: FLTrustPlan, block: Updates) -> Partial:
        if plan.unit is None:
            x = torch.zeros_like(block.norm)
        else:
            x = cosines(block.norm, row_dots(block.delta, plan.unit)).masked_fill(block.norm <= EPS, 0.0)
        trust = x.clamp_min(0.0)
        trusted, total = combine(torch.stack([trust * inverse_norms(block.norm), torch.ones_like(trust)]), block.delta)
        sums = {"trusted": trusted, "trust": trust.sum(), "along": (x * block.norm).sum()}
        per_client = {"norm": block.norm, "cosine": x, "trust": trust, "suspicion": 1.0 - x}
        return Partial.of(block, sums, per_client, total)

    def finish(
        self, state: NoState, plan: FLTrustPlan, partial: Partial
    ) -> tuple[Tensor, NoState, Mapping[str, float]]:
        trust = float(partial.sums["trust"])
        if trust > EPS:
            step = (partial.sums["trusted"].double() * (norm(plan.root) / trust)).float()
        else:
            step = plan.root.clone() if self.on_no_trust == "root" else torch.zeros_like(plan.root)
        metrics = {"trust_mean": trust / partial.count}
        total = norm(partial.total)
        if plan.unit is not None and total > EPS:
            metrics["reference_cosine"] = max(-1.0, min(1.0, float(partial.sums["along"]) / total))
        return step, state, metrics
