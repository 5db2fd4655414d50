"""SCAFFOLD: control variates that take each client's own drift out of its steps.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning,
ICML 2020.

    direction = g - c_m + c
    option I    c_m+ = gradient of F_m at theta^t, over all of the client's data
    option II   c_m+ = c_m - c - g_m / (U eta),  with the U and eta that were really applied
    c <- c + (1/M) sum_m (c_m+ - c_m)

so that c is the mean of all c_m after any history. This holds for the mean aggregate only: a robust aggregate replaces
sum_m (c_m+ - c_m) by its own aggregate of these differences times their number. Down (theta, c), up (g_m, c_m+ - c_m).

With local momentum g_m = -eta sum_k a_k (gradient of step k - c_m + c), and U becomes |a_m|_1 = sum_k a_k, the
normalisation of Wang et al. 2020, so that c_m+ is again a mean of local gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.arithmetic import effective_steps
from dragfl.corrections.none import Tensors, no_needs
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choices
from dragfl.types import Affine, FederationInfo, Fields, LocalResult, RoundContext, RoundInputs


@dataclass(frozen=True)
class ScaffoldState:
    c: Tensor


@dataclass(frozen=True)
class Scaffold:
    """Corrects client drift with control variates.

    | argument | symbol |
    |---|---|
    | option | how c_m is renewed: `II` from the update itself, `I` by one full gradient more |
    """

    option: Literal["I", "II"] = "II"

    fields: ClassVar[Fields] = {"c": "vector"}
    sends: ClassVar[Fields] = {"dc": "vector"}
    unsafe_with: ClassVar[frozenset[str]] = frozenset({"dnc"})  # 24 points on digits
    refuses: ClassVar[Mapping[str, str]] = {
        "clip_norm": "the control variate c_m estimates the client's gradient, and the mean of clipped gradients does "
        "not; the paper has no form with clipping"
    }
    paper: ClassVar[str] = "Karimireddy et al. 2020"
    needs = no_needs

    def __post_init__(self) -> None:
        check_choices("scaffold", self)

    def init(self, info: FederationInfo) -> ScaffoldState:
        return ScaffoldState(torch.zeros(info.dim, device=info.device))

    def broadcast(self, state: ScaffoldState, context: RoundContext, inputs: RoundInputs) -> Tensors:
        return {"c": state.c}

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine(shift=sent["c"] - mine["c"])

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
    ) -> tuple[Tensors, Tensors]:
        if self.option == "I":
            new = result.full_gradient()
        elif not result.lr > 0:  # the end of a schedule: steps of length zero carry no gradient
            new = mine["c"]
        else:
            moved = effective_steps(result.steps, context.momentum) * result.lr
            new = mine["c"] - sent["c"] - result.delta / moved
        return {"dc": new - mine["c"]}, {"c": new}

    def server_finish(
        self, state: ScaffoldState, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, ScaffoldState]:
        return step, ScaffoldState((state.c + aggregated["dc"] / info.clients).float())
