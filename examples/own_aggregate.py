"""A user-defined aggregate: the mean of updates, clipped to twice the mean norm of the previous round.

    python own_aggregate.py [ROUNDS]     # as an object, from Python
    dragfl run own_parts.toml            # by name, in this folder: aggregate = { name = "own_aggregate:ClippedMean" }

An aggregate is a frozen dataclass of hyper-parameters. Its state is a value that each round takes and returns, here the
mean norm of the previous round. It sees only updates, never the model or the data.
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
class MeanNorm:
    """State and plan: the mean norm of the previous round, 0 before the first."""

    norm: float = 0.0


@dataclass(frozen=True)
class ClippedMean:
    """mean of g_m min(1, factor * mean_norm / |g_m|); nothing is clipped in the first round."""

    factor: float = 2.0

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise SpecError(f"ClippedMean: factor={self.factor}; give a positive number")

    def init(self, info: FederationInfo) -> MeanNorm:
        return MeanNorm()

    def needs(self, state: MeanNorm) -> frozenset[Need]:
        return frozenset()  # no root update, no mean update, not all updates in one block

    def begin(self, state: MeanNorm, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> MeanNorm:
        return state

    def fold(self, plan: MeanNorm, block: Updates) -> Partial:
        radius = self.factor * plan.norm if plan.norm > 0 else torch.inf
        norms = block.norm  # float64, computed once per block
        kept = (radius / norms).clamp_max(1.0).nan_to_num(1.0)  # 0/0: a zero update is not clipped
        sums = {"clipped": kept.float() @ block.delta, "norms": norms.sum()}
        return Partial.of(block, sums, {"norm": norms, "suspicion": 1.0 - kept})

    def finish(self, state: MeanNorm, plan: MeanNorm, partial: Partial) -> tuple[Tensor, MeanNorm, Mapping[str, float]]:
        mean_norm = float(partial.sums["norms"]) / partial.count
        clipped = float((partial.per_client["suspicion"] > 0).double().mean())
        step = (partial.sums["clipped"] / partial.count).float()
        return step, MeanNorm(mean_norm), {"clipped_fraction": clipped}


if __name__ == "__main__":
    check_aggregate(ClippedMean())
    print("ClippedMean satisfies the contract")
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
