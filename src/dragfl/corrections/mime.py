"""Mime and MimeLite: clients mimic a centralised optimiser whose state the server keeps.

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh: Mime: Mimicking Centralized Stochastic Algorithms in Federated
Learning, 2020.

    c = sum_m w_m gradient of F_m at theta^t over all of its data, before the local steps: one more exchange
    Mime      d = g(w; batch) - g(theta^t; batch) + c
    MimeLite  d = g(w; batch)
    direction = beta s + (1 - beta) d,  s fixed during the round;    s <- beta s + (1 - beta) c afterwards

Mime sends down theta, s and c, MimeLite theta and s; both send up the update and the full gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.corrections.none import Tensors, nothing_kept
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choices, check_range
from dragfl.types import Affine, FederationInfo, Fields, RoundContext, RoundInputs


@dataclass(frozen=True)
class MimeState:
    s: Tensor  # the momentum of the mimicked optimiser


@dataclass(frozen=True)
class Mime:
    """Mimics SGD with momentum on the union of all data.

    | argument | symbol |
    |---|---|
    | momentum | beta in [0, 1) |
    | lite | leave out the correction of each step (MimeLite) |
    | weighting | w_m in c: `uniform` or `samples` |
    """

    momentum: float = 0.9
    lite: bool = False
    weighting: Literal["uniform", "samples"] = "uniform"

    fields: ClassVar[Fields] = {}
    sends: ClassVar[Fields] = {}
    refuses: ClassVar[Mapping[str, str]] = {
        "momentum": "its local steps apply the server's momentum s, which is fixed during a round; "
        "set algorithm.momentum",
        "clip_norm": "its correction and its momentum are full gradients, which are not clipped, so they do not match "
        "clipped local steps",
    }
    paper: ClassVar[str] = "Karimireddy et al. 2020b"
    client_finish = nothing_kept

    def __post_init__(self) -> None:
        check_choices("mime", self)
        check_range("mime", "momentum", self.momentum, 0.0, 1.0, open_high=True)

    def init(self, info: FederationInfo) -> MimeState:
        return MimeState(torch.zeros(info.dim, device=info.device))

    def needs(self, state: MimeState) -> frozenset[str]:
        return frozenset({"gradient" if self.weighting == "uniform" else "weighted_gradient"})

    def broadcast(self, state: MimeState, context: RoundContext, inputs: RoundInputs) -> Tensors:
        if inputs.gradient is None:
            raise ValueError("mime needs the mean full gradient; give `gradient` to broadcast()")
        return {"s": state.s} if self.lite else {"s": state.s, "c": inputs.gradient}

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        rest = 1.0 - self.momentum
        if self.lite:
            return Affine(scale=rest, shift=self.momentum * sent["s"])
        return Affine(scale=rest, anchor=-rest, shift=self.momentum * sent["s"] + rest * sent["c"])

    def server_finish(
        self, state: MimeState, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, MimeState]:
        return step, MimeState(self.momentum * state.s + (1.0 - self.momentum) * aggregated["gradient"].float())
