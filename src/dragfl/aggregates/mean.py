"""The mean update, as in FedAvg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from Decentralized
Data, AISTATS 2017. There clients are weighted by their number of samples; the DRAG paper and its baselines use equal
weights, which is the default here.

    step = sum_m p_m g_m / sum_m p_m,    p_m = 1 ("uniform") or N_m ("samples")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dragfl.aggregates._drag import pairwise_cosine
from dragfl.arithmetic import EPS, combine, inverse_norms
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choices
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


@dataclass(frozen=True)
class Mean:
    """Takes the mean update, weighted by samples if asked.

    | argument | symbol |
    |---|---|
    | weighting | p_m: `uniform` or `samples` |
    """

    weighting: Literal["uniform", "samples"] = "uniform"

    def __post_init__(self) -> None:
        check_choices("mean", self)

    init = no_state

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset()

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> NoState:
        return NoState()

    def fold(self, plan: NoState, block: Updates) -> Partial:
        by_samples = [block.weight] if self.weighting == "samples" else []
        rows = [torch.ones_like(block.weight), inverse_norms(block.norm), *by_samples]
        total, directions, *weighted = combine(torch.stack(rows), block.delta)
        moving = (block.norm > EPS).sum()
        sums = {"directions": directions, "moving": moving}
        if weighted:
            sums |= {"weighted": weighted[0], "p": block.weight.sum()}
        return Partial.of(block, sums, {"norm": block.norm}, total)

    def finish(self, state: NoState, plan: NoState, partial: Partial) -> tuple[Tensor, NoState, Mapping[str, float]]:
        sums = partial.sums
        step = (sums["weighted"] / sums["p"]).float() if self.weighting == "samples" else partial.mean
        return step, state, {"pairwise_cosine": pairwise_cosine(partial.sums)}
