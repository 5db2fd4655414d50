"""AdaBest: a local bias estimate that fades with a client's absence.

Varno, Saghayi, Rafiee Sevyeri, Gupta, Matwin, Havaei: AdaBest: Minimizing Client Drift in Federated Learning via
Adaptive Bias Estimation, ECCV 2022.

    direction = g - h_m
    h_m <- h_m / (t - t'_m) - mu g_m,    t'_m <- t      (first participation: h_m = -mu g_m)

The server half, theta^(t+1) = avg^t + beta (avg^t - avg^(t-1)) with avg^(-1) = theta^0, is the server step
`adabest`. mu has the unit of 1 / (eta U): it turns a displacement into a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.corrections.none import Tensors, no_needs, nothing_sent, step_unchanged
from dragfl.lazy import torch
from dragfl.schedules import check_range
from dragfl.types import Affine, Fields, LocalResult, RoundContext, no_state


@dataclass(frozen=True)
class AdaBest:
    """Subtracts a local bias estimate that decays while a client is absent.

    | argument | symbol |
    |---|---|
    | mu | mu >= 0, strength of the local estimate |
    """

    mu: float = 0.02

    fields: ClassVar[Fields] = {"h": "vector", "seen": "scalar"}  # seen: 1 + the last round, 0 for never
    sends: ClassVar[Fields] = {}
    own_iterate: ClassVar[Literal["client average"]] = "client average"
    init = no_state
    needs = no_needs
    broadcast = nothing_sent
    server_finish = step_unchanged

    def __post_init__(self) -> None:
        check_range("adabest", "mu", self.mu, 0.0, 1e6)

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine(shift=-mine["h"])

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
    ) -> tuple[Tensors, Tensors]:
        last = int(mine["seen"]) - 1
        faded = mine["h"] / (context.t - last) if last >= 0 else 0.0
        return {}, {"h": faded - self.mu * result.delta, "seen": torch.full_like(mine["seen"], context.t + 1)}
