"""A user-defined correction: a proximal term that is stronger for clients with long updates.

    python own_correction.py [ROUNDS]

Each client keeps the norm of its last update, s_m. The server keeps the mean of these norms, s.

    local direction   g + mu (s_m / s) (w - w0)
    client_finish     s_m = |delta|, kept and sent to the server
    server_finish     s = mean of the s_m that were sent

A correction does not depend on the aggregate; the last run combines it with DRAG.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import dragfl
from dragfl.testing import check_correction
from dragfl.types import Affine, FederationInfo, Fields, LocalResult, RoundContext, RoundInputs

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class MeanNorm:
    """Server state: the mean norm of the previous round's updates, 0 before the first."""

    norm: float = 0.0


@dataclass(frozen=True)
class AdaptiveProx:
    """direction = g + mu (s_m / s) (w - w0)."""

    mu: float = 0.5

    @property
    def fields(self) -> Fields:
        return {"norm": "scalar"}  # what each client keeps between rounds; zero at first

    @property
    def sends(self) -> Fields:
        return {"norm": "scalar"}  # what each client sends with its update

    def init(self, info: FederationInfo) -> MeanNorm:
        return MeanNorm()

    def needs(self, state: MeanNorm) -> frozenset[str]:
        return frozenset()  # neither the cohort's mean gradient nor the root update

    def broadcast(self, state: MeanNorm, context: RoundContext, inputs: RoundInputs) -> Tensors:
        return {"mean": torch.tensor(state.norm)}  # sent with the model, counted as bytes

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        mean = float(sent["mean"])
        return Affine(prox=self.mu * float(mine["norm"]) / mean) if mean > 0 else Affine()

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
    ) -> tuple[Tensors, Tensors]:
        norm = torch.linalg.vector_norm(result.delta)
        return {"norm": norm}, {"norm": norm}  # (sent, kept)

    def server_finish(
        self, state: MeanNorm, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, MeanNorm]:
        return step, MeanNorm(float(aggregated["norm"]) / float(aggregated["count"]))


if __name__ == "__main__":
    check_correction(AdaptiveProx())
    print("AdaptiveProx satisfies the contract")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name, parts in (
        ("FedAvg", {}),
        ("adaptive prox", {"correction": AdaptiveProx()}),
        ("adaptive prox x DRAG", {"correction": AdaptiveProx(), "aggregate": {"name": "drag", "c": 0.1}}),
    ):
        experiment = dragfl.load(
            {
                "rounds": rounds,
                "data": {"partition": {"kind": "sorted_shards"}},
                "algorithm": parts,
                "model": {"name": "mlp", "hidden": 64},
            }
        )
        last = list(dragfl.simulate(experiment))[-1]
        sent = f"{last.metrics['bytes_up']} bytes up, {last.metrics['bytes_down']} down in a round"
        print(f"{name}: accuracy {last.accuracy:.3f} after {last.round} rounds, {sent}")
