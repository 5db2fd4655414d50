"""A correction of your own, client half and server half in one place: a leash for the clients that stray most.

    python own_correction.py [ROUNDS]

Every client keeps the length of its last update, s_m; the server keeps the mean length, s. A client is held near the
model it was sent in proportion to how far it strayed the last time:

    local direction   g + mu (s_m / s) (w - w0)
    client, at end    s_m' = |delta|,    sends s_m'
    server            s' = mean of what was sent

The correction is independent of the aggregate: here it runs under DRAG's as well, a combination without a name.
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
class Usual:
    """Server state: the mean length of the last round's updates, 0 before the first."""

    stray: float = 0.0


@dataclass(frozen=True)
class Leash:
    """direction = g + mu (s_m / s) (w - w0)."""

    mu: float = 0.5

    @property
    def fields(self) -> Fields:
        return {"stray": "scalar"}  # what each client keeps between rounds; zero at first

    @property
    def sends(self) -> Fields:
        return {"stray": "scalar"}  # what each client sends up with its update

    def init(self, info: FederationInfo) -> Usual:
        return Usual()

    def needs(self, state: Usual) -> frozenset[str]:
        return frozenset()  # not the cohort's mean gradient

    def broadcast(self, state: Usual, context: RoundContext, inputs: RoundInputs) -> Tensors:
        return {"usual": torch.tensor(state.stray)}  # sent down beside the model, counted as bytes

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        usual = float(sent["usual"])
        return Affine(prox=self.mu * float(mine["stray"]) / usual) if usual > 0 else Affine()

    def client_finish(
        self, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
    ) -> tuple[Tensors, Tensors]:
        stray = torch.linalg.vector_norm(result.delta)
        return {"stray": stray}, {"stray": stray}  # (sent up, kept)

    def server_finish(
        self, state: Usual, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, Usual]:
        return step, Usual(float(aggregated["stray"]) / float(aggregated["count"]))


if __name__ == "__main__":
    check_correction(Leash())
    print("Leash keeps the contract")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name, parts in (
        ("FedAvg", {}),
        ("leash", {"correction": Leash()}),
        ("leash x DRAG", {"correction": Leash(), "aggregate": {"name": "drag", "c": 0.1}}),
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
