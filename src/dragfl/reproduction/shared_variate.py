"""SCAFFOLD as the DRAG authors' code has it: the control variate of every client comes from the same test data.

    c_m+ = -r / (U eta),  r the update of U steps on the root data (`root.source = "test"`), the same for all clients

where SCAFFOLD takes it from the client's own data. With all clients in every round c - c_m is zero and this is FedAvg;
with some of them it is the difference of two test gradients, and says nothing of the client's drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dragfl.corrections.idle import Tensors
from dragfl.corrections.scaffold import Scaffold
from dragfl.types import Affine, FederationInfo, Fields, LocalResult, RoundContext, RoundInputs, State

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    from dragfl.lazy import torch

SCAFFOLD = Scaffold()


@dataclass(frozen=True)
class SharedVariate:
    """SCAFFOLD's steps with variates that know nothing of the client."""

    fields: ClassVar[Fields] = SCAFFOLD.fields
    sends: ClassVar[Fields] = SCAFFOLD.sends

    def needs(self, state: State) -> frozenset[str]:
        return frozenset({"root"})

    def init(self, setting: FederationInfo) -> State:
        return SCAFFOLD.init(setting)

    def broadcast(self, state: State, now: RoundContext, inputs: RoundInputs) -> Tensors:
        if inputs.root is None:
            raise ValueError("SharedVariate needs the root update; give `root` to broadcast()")
        return {"c": state.c, "root": inputs.root}

    def affine(self, mine: Tensors, sent: Tensors, now: RoundContext) -> Affine:
        return SCAFFOLD.affine(mine, sent, now)

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, now: RoundContext
    ) -> tuple[Tensors, Tensors]:
        root, lr = sent["root"], result.lr
        variate = root / (-result.steps * lr) if lr > 0 else torch.zeros_like(root)
        return {"dc": variate - mine["c"]}, {"c": variate}

    def server_finish(
        self, state: State, aggregated: Tensors, step: Tensor, setting: FederationInfo, now: RoundContext
    ) -> tuple[Tensor, State]:
        return SCAFFOLD.server_finish(state, aggregated, step, setting, now)
