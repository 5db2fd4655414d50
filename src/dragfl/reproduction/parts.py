"""Algorithm parts that only the reproduction uses: two variants of the authors' code.

Curves name them by path, as in `algorithm.correction=dragfl.reproduction.parts:SharedVariateScaffold`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dragfl.corrections.none import Tensors
from dragfl.corrections.scaffold import Scaffold, ScaffoldState
from dragfl.lazy import Tensor, torch
from dragfl.server_steps.adabest import AdaBestServer, AdaBestServerState
from dragfl.types import FederationInfo, Fields, LocalResult, RoundContext, RoundInputs

SCAFFOLD = Scaffold()


@dataclass(frozen=True)
class AdaBestFromZero:
    """AdaBest's server step in the authors' code: the average before the first round is the zero vector.

        theta^1 = avg^0 + beta (avg^0 - 0) = (1 + beta) avg^0

    so the first round scales all weights by 1 + beta, where AdaBest itself starts from avg^(-1) = theta^0.
    """

    beta: float = 0.8

    def init(self, info: FederationInfo) -> AdaBestServerState:
        return AdaBestServerState()

    def update(
        self, state: AdaBestServerState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, AdaBestServerState]:
        before = AdaBestServerState(torch.zeros_like(w)) if state.average is None else state
        return AdaBestServer(beta=self.beta).update(before, step, w, context)


@dataclass(frozen=True)
class SharedVariateScaffold:
    """SCAFFOLD in the authors' code: all clients share one control variate, computed on test data.

        c_m+ = -r / (U eta),  r the update of U steps on the root data, here drawn from the test set

    SCAFFOLD itself computes it on the client's own data. At full participation c - c_m is zero and this is FedAvg; at
    partial participation it is the difference of two test gradients, independent of the client's drift.
    """

    fields: ClassVar[Fields] = SCAFFOLD.fields
    sends: ClassVar[Fields] = SCAFFOLD.sends
    refuses: ClassVar[Mapping[str, str]] = {**SCAFFOLD.refuses, "momentum": "the authors' code has plain SGD"}
    init = staticmethod(SCAFFOLD.init)
    affine = staticmethod(SCAFFOLD.affine)
    server_finish = staticmethod(SCAFFOLD.server_finish)

    def needs(self, state: ScaffoldState) -> frozenset[str]:
        return frozenset({"root"})

    def broadcast(self, state: ScaffoldState, context: RoundContext, inputs: RoundInputs) -> Tensors:
        if inputs.root is None:
            raise ValueError("SharedVariateScaffold needs the root update; give `root` to broadcast()")
        return {"c": state.c, "root": inputs.root}

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
    ) -> tuple[Tensors, Tensors]:
        root, lr = sent["root"], result.lr
        variate = root / (-result.steps * lr) if lr > 0 else torch.zeros_like(root)
        return {"dc": variate - mine["c"]}, {"c": variate}
