"""FedDyn: a dynamic regulariser under which local optima agree with the global one.

Acar, Zhao, Navarro, Mattina, Whatmough, Saligrama: Federated Learning Based on Dynamic Regularization, ICLR 2021.

    direction = g + alpha (w - theta^t + h_m)
    h_m <- h_m + g_m
    h <- h + (1/M) sum_{m in S} g_m        the mean of h_m over all M clients, absent ones too
    theta^(t+1) = theta^t + Delta + h

|h| can grow where clients take part rarely; it is logged as `h_norm`. The authors' code evaluates
averages of client models, not theta^(t+1). Here that of the cohort, theta^t + Delta, is `own_accuracy` in the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.corrections.none import Tensors, no_needs, nothing_sent
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range
from dragfl.types import Affine, FederationInfo, Fields, LocalResult, RoundContext


@dataclass(frozen=True)
class FedDynState:
    h: Tensor


@dataclass(frozen=True)
class FedDyn:
    """Adds a dynamic regulariser to the local objective.

    | argument | symbol |
    |---|---|
    | strength | alpha > 0 of the paper |
    """

    strength: float = 0.1

    fields: ClassVar[Fields] = {"h": "vector"}
    sends: ClassVar[Fields] = {}
    own_iterate: ClassVar[Literal["client average"]] = "client average"
    paper: ClassVar[str] = "Acar et al. 2021"
    needs = no_needs
    broadcast = nothing_sent

    def __post_init__(self) -> None:
        check_range("feddyn", "strength", self.strength, 0.0, 1e6)

    def init(self, info: FederationInfo) -> FedDynState:
        return FedDynState(torch.zeros(info.dim, device=info.device))

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine(prox=self.strength, shift=self.strength * mine["h"])

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
    ) -> tuple[Tensors, Tensors]:
        return {}, {"h": mine["h"] + result.delta}

    def server_finish(
        self, state: FedDynState, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, FedDynState]:
        h = (state.h + aggregated["delta"] / info.clients).float()
        return step + h, FedDynState(h)
