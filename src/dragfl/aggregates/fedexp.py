"""FedExP: a longer server step when client updates disagree.

Jhunjhunwala, Wang, Joshi: FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR 2023.

    eta_g = max(1, mean_m |g_m|^2 / (2 (|mean g|^2 + eps))),    Delta = eta_g mean g

Like DRAG it steps further when clients are near orthogonal, so it is the control for how much of a gain is mere
length. eta_g grows as mean g vanishes: it is logged, and `cap` bounds it. The iterates oscillate, so the paper
evaluates the mean of the last two models: `own_accuracy` in the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.arithmetic import norm
from dragfl.lazy import Tensor
from dragfl.schedules import check_range
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


@dataclass(frozen=True)
class FedExP:
    """Takes a longer step when client updates disagree.

    | argument | symbol |
    |---|---|
    | eps | epsilon > 0 |
    | cap | largest eta_g allowed; none by default |
    """

    eps: float = 1e-3
    cap: float | None = None
    paper: ClassVar[str] = "Jhunjhunwala et al. 2023"
    own_iterate: ClassVar[Literal["mean of two"]] = "mean of two"

    def __post_init__(self) -> None:
        check_range("fedexp", "eps", self.eps, 0.0, 1e6, open_low=True)
        if self.cap is not None:
            check_range("fedexp", "cap", self.cap, 1.0, 1e9)

    init = no_state

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset()

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> NoState:
        return NoState()

    def fold(self, plan: NoState, block: Updates) -> Partial:
        return Partial.of(block, {"squares": block.norm.square().sum()}, {"norm": block.norm})

    def finish(self, state: NoState, plan: NoState, partial: Partial) -> tuple[Tensor, NoState, Mapping[str, float]]:
        mean = partial.mean
        eta = max(1.0, float(partial.sums["squares"]) / partial.count / (2.0 * (norm(mean) ** 2 + self.eps)))
        eta = eta if self.cap is None else min(eta, self.cap)
        return eta * mean, state, {"server_lr": eta}
