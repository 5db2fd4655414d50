"""RLR, robust learning rate: step backwards in every coordinate where too few clients agree on the sign.

Ozdayi, Kantarcioglu, Gel: Defending against Backdoors in Federated Learning with Robust Learning Rate, AAAI 2021.

    Delta_j = mean_i g_ij  if |sum_i sign(g_ij)| >= threshold,  else  -mean_i g_ij

A block folds to sum g and sum sign(g), so it streams. The threshold is f + 1 by default. It is made against backdoors
that need coordinates of their own; lengths are not bounded, so that one long update breaks it. Suspicion is |g_i|,
all that can be said of an update before the others are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dragfl.aggregates.robust.contract import any_number, check_settings, find_shortage
from dragfl.aggregates.robust.gram import FLOAT32_SAFE
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


@dataclass(frozen=True)
class RLR:
    """Takes the mean, negated in coordinates where too few clients agree on the sign.

    | argument | symbol |
    |---|---|
    | threshold | theta; f + 1 by default |
    """

    f: int | None = None
    threshold: float | None = None
    name: ClassVar[str] = "rlr"
    paper: ClassVar[str] = "Ozdayi et al. 2021"
    aggregates_extras: ClassVar[bool] = False  # a single long extra would pass, as a long update does

    def __post_init__(self) -> None:
        check_settings(self)
        if self.threshold is not None:
            check_range("rlr", "threshold", self.threshold, 0.0, 1e9)

    init = no_state
    least = any_number

    def shortage(self, n: int) -> str | None:
        return find_shortage((self,), n, None)

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset()

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> NoState:
        return NoState()

    def fold(self, plan: NoState, block: Updates) -> Partial:
        signs = block.delta.sign().sum(0)
        return Partial.of(block, {"signs": signs}, {"norm": block.norm, "suspicion": block.norm}, _total(block))

    def finish(self, state: NoState, plan: NoState, partial: Partial) -> tuple[Tensor, NoState, Mapping[str, float]]:
        agree = partial.sums["signs"].abs() >= self.least_agreement
        mean = partial.total.double() / partial.count
        return torch.where(agree, mean, -mean).float(), state, {"reversed": float((~agree).double().mean())}

    @property
    def least_agreement(self) -> float:
        return (self.f or 0) + 1.0 if self.threshold is None else self.threshold


def _total(block: Updates) -> Tensor:
    """The sum of the updates; in float64 where it may leave float32."""
    safe = float(block.norm.max()) * len(block) <= FLOAT32_SAFE
    return block.delta.sum(0) if safe else block.delta.double().sum(0)
