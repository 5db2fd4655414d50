"""FoolsGold: clients with similar histories share one vote.

Fung, Yoon, Beschastnikh: The Limitations of Federated Learning in Sybil Settings, RAID 2020.

    H_i  sum of all updates of client i so far,  cs_ij = cos(H_i, H_j) for i != j, 0 where a history is zero
    v_i = max(0, max_j cs_ij);   pardoning: where v_i < v_j, cs_ij <- cs_ij v_i / v_j
    w_i = 1 - max(0, max_j cs_ij), divided by max w, 1 -> 0.99, then clip(ln(w / (1 - w)) + 0.5, 0, 1)
    Delta = sum w_i g_i / sum w_i

What is normalised: histories, inside the cosines; w, by its largest value, before the logarithm; and the step, by the
sum of w, so that it is a weighted mean of the updates. The paper's step is sum w_i g_i without a division. The authors'
public code for soft-max regression does the same, on updates scaled to a length of at most 1, which also enter the
histories; their code for deep networks divides by n and takes histories of the last layer's weights only. There a step
is shorter the more clients are found alike, here it is not. Here updates are of any length and histories of all
parameters; the weights of features in the paper are not implemented. Where all w are zero their code divides 0 by 0.

If all w are zero (identical histories, as with equal data) the round is the mean, or zero with
`on_identical = "skip"`. No f is assumed and lengths are not bounded: one long update that differs from the others
breaks it. Suspicion is the largest cosine to another history after pardoning.

The server keeps one vector for every client ever seen: with M clients and d parameters up to 4 M d bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.aggregates.robust.contract import check_settings
from dragfl.aggregates.robust.gram import blend, dots
from dragfl.aggregates.robust.rule import whole_cohort
from dragfl.arithmetic import EPS
from dragfl.lazy import Tensor, torch
from dragfl.types import FederationInfo, Partial, RoundContext, RoundInputs, Updates


@dataclass(frozen=True)
class Histories:
    seen: Tensor | None = None  # (m,) int64 ids of the clients seen, ascending
    H: Tensor | None = None  # (m, d) float32 sums of their updates


@dataclass(frozen=True)
class FoolsGold:
    """Weights updates by how dissimilar their client's history is to all others.

    | argument | symbol |
    |---|---|
    | on_identical | when every w is zero: the `mean`, or `skip` the round |
    """

    on_identical: Literal["mean", "skip"] = "mean"
    name: ClassVar[str] = "fools_gold"
    paper: ClassVar[str] = "Fung et al. 2020"
    aggregates_extras: ClassVar[bool] = False  # histories are of updates, and lengths are not bounded

    def __post_init__(self) -> None:
        check_settings(self)

    needs = whole_cohort

    def init(self, info: FederationInfo) -> Histories:
        return Histories()

    def begin(self, state: Histories, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> Histories:
        return state

    def fold(self, plan: Histories, block: Updates) -> Partial:
        history = block.delta + _known(plan, block)
        end = torch.finfo(history.dtype).max
        history.clamp_(-end, end)
        w, similarity = dissimilarity(dots(history))
        step = blend(normalised(w, self.on_identical).unsqueeze(0), block.delta, float(block.norm.max()))[0]
        order = block.client.sort().indices
        sums = {"step": step, "history": history[order], "client": block.client[order]}
        return Partial.of(block, sums, {"norm": block.norm, "suspicion": similarity, "trust": w})

    def finish(
        self, state: Histories, plan: Histories, partial: Partial
    ) -> tuple[Tensor, Histories, Mapping[str, float]]:
        client, total = partial.sums["client"].long(), partial.sums["history"].float()
        if state.seen is not None and state.H is not None:
            old = ~torch.isin(state.seen, client)
            client, total = torch.cat([state.seen[old], client]), torch.cat([state.H[old], total])
        order = client.sort().indices
        weight = float(partial.per_client["trust"].mean())
        return partial.sums["step"].float(), Histories(client[order], total[order]), {"trust_mean": weight}


def _known(state: Histories, block: Updates) -> Tensor:
    """The histories of these clients up to now, zero for new ones."""
    known = torch.zeros_like(block.delta)
    if state.seen is not None and state.H is not None:
        here = torch.isin(block.client, state.seen)
        known[here] = state.H[torch.searchsorted(state.seen, block.client[here])].to(known)
    return known


def dissimilarity(G: Tensor) -> tuple[Tensor, Tensor]:
    """(w, largest cosine to another after pardoning), both (n,), from the dots of the histories."""
    q = G.diagonal().clamp_min(0.0).sqrt()
    inverse = torch.where(q > EPS, 1.0 / q.clamp_min(EPS), 0.0)
    cs = (G * inverse.unsqueeze(0) * inverse.unsqueeze(1)).clamp_(-1.0, 1.0).fill_diagonal_(0.0)
    v = cs.amax(1).clamp_min(0.0)
    pardon = v.unsqueeze(1) < v.unsqueeze(0)
    cs = torch.where(pardon, cs * (v.unsqueeze(1) / v.clamp_min(EPS).unsqueeze(0)), cs)
    similarity = cs.fill_diagonal_(0.0).amax(1).clamp_min(0.0)
    w = (1.0 - similarity).clamp(0.0, 1.0)
    if not w.max() > EPS:
        return torch.zeros_like(w), similarity
    w = (w / w.max()).clamp_max(0.99)
    return torch.where(w > 0, (w / (1.0 - w)).log() + 0.5, 0.0).clamp(0.0, 1.0), similarity


def normalised(w: Tensor, on_identical: str) -> Tensor:
    """Weights with sum one; where all are zero the mean's, or zeros to skip the round."""
    if float(w.sum()) > 0.0:
        return w / w.sum()
    return torch.full_like(w, 1.0 / len(w)) if on_identical == "mean" else w
