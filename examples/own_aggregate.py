"""An aggregate of your own: the mean of updates that are clipped to twice the usual length.

    python own_aggregate.py [ROUNDS]     # as an object, from Python
    dragfl run own_parts.toml            # by name, in this folder: aggregate = { name = "own_aggregate:ClippedMean" }

A rule is a frozen dataclass of hyper-parameters. What it remembers is a state that goes in and comes out of each
round, here the mean norm of the last one; it never sees the model, the data or who sent what.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import dragfl
from dragfl.errors import SpecError
from dragfl.testing import check_aggregate
from dragfl.types import FederationInfo, Need, Partial, RoundContext, RoundInputs, Updates


@dataclass(frozen=True)
class Usual:
    """State and plan alike: the mean norm of the last round, 0 before the first."""

    norm: float = 0.0


@dataclass(frozen=True)
class ClippedMean:
    """mean of g_m min(1, factor * usual / |g_m|); nothing is clipped in the first round."""

    factor: float = 2.0

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise SpecError(f"ClippedMean: factor={self.factor}; give a positive number")

    def init(self, info: FederationInfo) -> Usual:
        return Usual()

    def needs(self, state: Usual) -> frozenset[Need]:
        return frozenset()  # neither root data, nor a first pass for the mean, nor all updates at once

    def begin(self, state: Usual, context: RoundContext, given: RoundInputs, info: FederationInfo) -> Usual:
        return state

    def fold(self, plan: Usual, block: Updates) -> Partial:
        radius = self.factor * plan.norm if plan.norm > 0 else torch.inf
        norms = block.norm  # float64, computed once for a block
        kept = (radius / norms).clamp_max(1.0).nan_to_num(1.0)  # 0/0: a zero update stays as it is
        sums = {"clipped": kept.float() @ block.delta, "norms": norms.sum()}
        return Partial.of(block, sums, {"norm": norms, "suspicion": 1.0 - kept})

    def finish(self, state: Usual, plan: Usual, partial: Partial) -> tuple[Tensor, Usual, Mapping[str, float]]:
        usual = float(partial.sums["norms"]) / partial.count
        clipped = float((partial.per_client["suspicion"] > 0).double().mean())
        step = (partial.sums["clipped"] / partial.count).float()
        return step, Usual(usual), {"clipped_share": clipped}


if __name__ == "__main__":
    check_aggregate(ClippedMean())
    print("ClippedMean keeps the contract")
    experiment = dragfl.load(
        {
            "rounds": int(sys.argv[1]) if len(sys.argv) > 1 else 60,
            "algorithm": {"aggregate": ClippedMean(factor=1.5), "server": {"name": "momentum", "beta": 0.5}},
            "attack": {"name": "random_scaling", "attackers": 4},
            "model": {"name": "logistic"},
        }
    )
    for record in dragfl.simulate(experiment):
        if record.accuracy is not None:
            print(f"round {record.round}: accuracy {record.accuracy:.3f}")
