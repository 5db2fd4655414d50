"""FedCM: the last global direction is mixed into every local step.

Xu, Wang, Wang, Yao: FedCM: Federated Learning with Client-level Momentum, 2021.

    direction = a g + (1 - a) D^t
    D^(t+1) = -Delta / (eta U)        the mean local gradient of this round, as seen by the server; D^0 = 0

Down (theta, D), up one vector; no client state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dragfl.corrections.none import Tensors, no_needs, nothing_kept
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range
from dragfl.types import Affine, FederationInfo, Fields, RoundContext, RoundInputs


@dataclass(frozen=True)
class FedCMState:
    direction: Tensor


@dataclass(frozen=True)
class FedCM:
    """Mixes the last global direction into every local step.

    | argument | symbol |
    |---|---|
    | a | a in (0, 1], weight of the local gradient |
    """

    a: float = 0.1

    fields: ClassVar[Fields] = {}
    sends: ClassVar[Fields] = {}
    unsafe_with: ClassVar[frozenset[str]] = frozenset({"norm_clipping"})  # 20 points on digits
    refuses: ClassVar[Mapping[str, str]] = {
        "momentum": "its local steps already have a momentum, D with weight 1 - a, and D is a mean over plain steps; "
        "set algorithm.a"
    }
    paper: ClassVar[str] = "Xu et al. 2021"
    needs = no_needs
    client_finish = nothing_kept

    def __post_init__(self) -> None:
        check_range("fedcm", "a", self.a, 0.0, 1.0, open_low=True)

    def init(self, info: FederationInfo) -> FedCMState:
        return FedCMState(torch.zeros(info.dim, device=info.device))

    def broadcast(self, state: FedCMState, context: RoundContext, inputs: RoundInputs) -> Tensors:
        return {"direction": state.direction}

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine(scale=self.a, shift=(1.0 - self.a) * sent["direction"])

    def server_finish(
        self, state: FedCMState, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, FedCMState]:
        steps = float(aggregated["steps"]) / float(aggregated["count"])
        return step, FedCMState(step / (-context.lr * steps)) if context.lr > 0 else state
