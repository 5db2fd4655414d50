"""Algorithm parts that only the reproduction uses: two variants of the authors' code, and training on root data alone.

Curves name them by path, as in `algorithm.aggregate=dragfl.reproduction.parts:RootOnly`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dragfl.corrections.idle import Tensors
from dragfl.corrections.scaffold import Scaffold
from dragfl.lazy import Tensor, torch
from dragfl.server_steps.adabest import AdaBestServer, AdaBestServerState
from dragfl.types import (
    Affine,
    FederationInfo,
    Fields,
    LocalResult,
    Need,
    Partial,
    Plan,
    RoundContext,
    RoundInputs,
    State,
    Updates,
    no_state,
)

SCAFFOLD = Scaffold()


@dataclass(frozen=True)
class AdaBestFromZero:
    """AdaBest's server step in the authors' code: the average before the first round is the zero vector.

        theta^1 = avg^0 + beta (avg^0 - 0) = (1 + beta) avg^0

    so the first round scales all weights by 1 + beta, where AdaBest itself starts from avg^(-1) = theta^0.
    """

    beta: float = 0.8

    def init(self, setting: FederationInfo) -> State:
        return AdaBestServerState()

    def update(self, state: State, step: Tensor, w: Tensor, now: RoundContext) -> tuple[Tensor, State, Tensor | None]:
        before = AdaBestServerState(torch.zeros_like(w)) if state.average is None else state
        return AdaBestServer(beta=self.beta).update(before, step, w, now)


@dataclass(frozen=True)
class SharedVariateScaffold:
    """SCAFFOLD in the authors' code: all clients share one control variate, computed on test data.

        c_m+ = -r / (U eta),  r the update of U steps on the root data, here drawn from the test set

    SCAFFOLD itself computes it on the client's own data. At full participation c - c_m is zero and this is FedAvg; at
    partial participation it is the difference of two test gradients, independent of the client's drift.
    """

    fields: ClassVar[Fields] = SCAFFOLD.fields

    def needs(self, state: State) -> frozenset[str]:
        return frozenset({"root"})

    def init(self, setting: FederationInfo) -> State:
        return SCAFFOLD.init(setting)

    def broadcast(self, state: State, now: RoundContext, given: RoundInputs) -> Tensors:
        if given.root is None:
            raise ValueError("SharedVariateScaffold needs the root update; give `root` to broadcast()")
        variate = given.root / (-now.steps * now.lr) if now.lr > 0 else torch.zeros_like(given.root)
        return {"c": state.c, "variate": variate}

    def affine(self, mine: Tensors, sent: Tensors, now: RoundContext) -> Affine:
        return SCAFFOLD.affine(mine, sent, now)

    def client_finish(
        self, done: LocalResult, mine: Tensors, sent: Tensors, now: RoundContext
    ) -> tuple[Tensors, Tensors]:
        return {"dc": sent["variate"] - mine["c"]}, {"c": sent["variate"]}

    def server_finish(
        self, state: State, sums: Tensors, step: Tensor, setting: FederationInfo, now: RoundContext
    ) -> tuple[Tensor, State]:
        return SCAFFOLD.server_finish(state, sums, step, setting, now)


@dataclass(frozen=True)
class RootPlan:
    root: Tensor


@dataclass(frozen=True)
class RootOnly:
    """step = the update on the root data: the baseline without clients for BR-DRAG and FLTrust."""

    init = no_state

    def needs(self, state: State) -> frozenset[Need]:
        return frozenset({"root"})

    def begin(self, state: State, now: RoundContext, given: RoundInputs, setting: FederationInfo) -> Plan:
        if given.root is None:
            raise ValueError("RootOnly needs the root update; give `root` to begin()")
        return RootPlan(given.root)

    def fold(self, plan: Plan, block: Updates) -> Partial:
        return Partial.of(block, {}, {"norm": block.norm})

    def finish(self, state: State, plan: Plan, partial: Partial) -> tuple[Tensor, State, Mapping[str, float]]:
        return plan.root, state, {}
