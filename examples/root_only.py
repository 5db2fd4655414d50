"""A control for methods with trusted root data: an aggregate that ignores the clients and returns the root update.

    python root_only.py [ROUNDS]

BR-DRAG and FLTrust benefit from their clients only if they are better than this control, where the server trains on its
root data only. The settings are those of `dragfl demo`: 20 clients with label-sorted digits, six of them flip the sign.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

import dragfl
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, State, Updates


@dataclass(frozen=True)
class RootPlan:
    root: Tensor


@dataclass(frozen=True)
class RootOnly:
    """step = the update of the root data."""

    def init(self, info: FederationInfo) -> State:
        return NoState()

    def needs(self, state: State) -> frozenset[Need]:
        return frozenset({"root"})

    def begin(self, state: State, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> RootPlan:
        if inputs.root is None:
            raise ValueError("RootOnly needs the root update")
        return RootPlan(inputs.root)

    def fold(self, plan: RootPlan, block: Updates) -> Partial:
        return Partial.of(block, {}, {"norm": block.norm})

    def finish(self, state: State, plan: RootPlan, partial: Partial) -> tuple[Tensor, State, Mapping[str, float]]:
        return plan.root, state, {}


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for seed in range(3):
        for label, algorithm in (
            ("root only", {"aggregate": RootOnly()}),
            ("BR-DRAG", {"name": "br_drag", "c": 0.5}),
        ):
            experiment = dragfl.load(
                {
                    "seed": seed,
                    "rounds": rounds,
                    "data": {"partition": {"kind": "sorted_shards"}},
                    "root": {"size": 100},
                    "algorithm": algorithm,
                    "attack": {"name": "sign_flip", "attackers": 6},
                    "model": {"name": "mlp", "hidden": 64},
                    "evaluation": {"every": 5},
                }
            )
            best = max(record.accuracy or 0.0 for record in dragfl.simulate(experiment))
            print(f"seed {seed}, {label}: best accuracy {best:.3f} in {rounds} rounds")
