"""FedDC: each client keeps its drift apart, and a gradient correction on top.

Gao, Fu, Li, Chen, Xu, Xu: FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction,
CVPR 2022.

    min_w F_m(w) + (alpha/2) |w - (theta^t - h_m)|^2 + <w, s - s_m>
    direction = g + alpha (w - theta^t + h_m) + s - s_m
    h_m <- h_m + g_m,    s_m+ = s_m - s - g_m / (U eta)
    theta^(t+1) = theta^t + Delta + (1/M) sum over all clients of h_m,    s <- s + (1/M) sum_{m in S} (s_m+ - s_m)

Down (theta, s), up (g_m, s_m+ - s_m). |mean h| is logged as `h_norm`. The authors' code evaluates the
average of the client models too, theta^t + Delta: `own_accuracy` in the metrics. With local momentum U becomes
|a_m|_1, as in SCAFFOLD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.arithmetic import effective_steps
from dragfl.corrections.none import Tensors, no_needs
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range
from dragfl.types import Affine, FederationInfo, Fields, LocalResult, RoundContext, RoundInputs


@dataclass(frozen=True)
class FedDCState:
    s: Tensor
    h: Tensor  # the mean drift over all clients


@dataclass(frozen=True)
class FedDC:
    """Separates each client's drift from its model and corrects its gradient.

    | argument | symbol |
    |---|---|
    | strength | alpha > 0 of the paper |
    """

    strength: float = 0.01

    fields: ClassVar[Fields] = {"h": "vector", "s": "vector"}
    sends: ClassVar[Fields] = {"ds": "vector"}
    own_iterate: ClassVar[Literal["client average"]] = "client average"
    unsafe_with: ClassVar[frozenset[str]] = frozenset({"krum", "median", "trimmed_mean"})  # 10 to 18 points on digits
    refuses: ClassVar[Mapping[str, str]] = {
        "clip_norm": "s_m estimates the client's gradient from its update, and the mean of clipped gradients does not"
    }
    paper: ClassVar[str] = "Gao et al. 2022"
    needs = no_needs

    def __post_init__(self) -> None:
        check_range("feddc", "strength", self.strength, 0.0, 1e6)

    def init(self, info: FederationInfo) -> FedDCState:
        return FedDCState(torch.zeros(info.dim, device=info.device), torch.zeros(info.dim, device=info.device))

    def broadcast(self, state: FedDCState, context: RoundContext, inputs: RoundInputs) -> Tensors:
        return {"s": state.s}

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine(prox=self.strength, shift=self.strength * mine["h"] + sent["s"] - mine["s"])

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
    ) -> tuple[Tensors, Tensors]:
        # With a local rate of zero, as at the end of a schedule, the steps carry no gradient.
        moved = effective_steps(result.steps, context.momentum) * result.lr
        new = mine["s"] - sent["s"] - result.delta / moved if result.lr > 0 else mine["s"]
        return {"ds": new - mine["s"]}, {"h": mine["h"] + result.delta, "s": new}

    def server_finish(
        self, state: FedDCState, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, FedDCState]:
        h = (state.h + aggregated["delta"] / info.clients).float()
        s = (state.s + aggregated["ds"] / info.clients).float()
        return step + h, FedDCState(s, h)
