"""AdaBest's server half as the DRAG authors' code has it: the average before the first round is the zero vector.

    theta^1 = avg^0 + beta (avg^0 - 0) = (1 + beta) avg^0

so all weights grow by 1 + beta after the first round, where AdaBest itself starts from avg^(-1) = theta^0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragfl.server_steps.adabest import AdaBestServer, AdaBestServerState
from dragfl.types import FederationInfo, RoundContext, State

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    from dragfl.lazy import torch


@dataclass(frozen=True)
class FromZero:
    """Extrapolate from zero in the first round, and as AdaBest afterwards."""

    beta: float = 0.8

    def init(self, setting: FederationInfo) -> State:
        return AdaBestServerState()

    def update(self, state: State, step: Tensor, w: Tensor, now: RoundContext) -> tuple[Tensor, State]:
        before = AdaBestServerState(torch.zeros_like(w)) if state.average is None else state
        return AdaBestServer(beta=self.beta).update(before, step, w, now)

    def evaluated(self, state: AdaBestServerState, w: Tensor) -> Tensor:
        return AdaBestServer(beta=self.beta).evaluated(state, w)
