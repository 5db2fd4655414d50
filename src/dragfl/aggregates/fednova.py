"""FedNova: clients that make more local steps do not pull harder.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization,
NeurIPS 2020.

    Delta = tau_eff sum_m p_m g_m / |a_m|_1,    tau_eff = sum_m p_m |a_m|_1, without the proximal term
    |a_m|_1 = tau_m                                                    plain SGD with tau_m local steps
    |a_m|_1 = [tau_m - rho (1 - rho^tau_m) / (1 - rho)] / (1 - rho)    local momentum rho
    |a_m|_1 = (1 - (1 - eta mu)^tau_m) / (eta mu)                      a proximal term mu

With both, |a_m|_1 is the sum of the weights that the gradients have in g_m (`effective_steps`).

p_m is the client's share of the cohort's samples, as in the paper and its public code (n_m / n over all clients, who
all take part there), or 1/S for each of S clients with `weighting = "uniform"`. With equal steps it is FedAvg with the
same weighting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from dragfl.arithmetic import combine, effective_steps
from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choices, check_range
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


@dataclass(frozen=True)
class FedNovaPlan:
    shrink: float  # eta mu
    momentum: float = 0.0  # rho


@dataclass(frozen=True)
class FedNova:
    """Normalises updates by their number of local steps.

    | argument | symbol |
    |---|---|
    | weighting | p_m: `samples` or `uniform` |
    | prox | mu of a proximal term that the clients use |
    """

    weighting: Literal["uniform", "samples"] = "samples"
    prox: float = 0.0
    refuses: ClassVar[Mapping[str, str]] = {
        "clip_norm": "the weights a_m of the gradients in an update must be known, and clipping makes them depend on "
        "the gradients; the paper has no form with clipping"
    }
    paper: ClassVar[str] = "Wang et al. 2020"

    def __post_init__(self) -> None:
        check_choices("fednova", self)
        check_range("fednova", "prox", self.prox, 0.0, 1e6)

    init = no_state

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset()

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> FedNovaPlan:
        shrink = context.lr * self.prox
        if not shrink < 1.0:
            raise SpecError(f"fednova: lr * prox = {shrink:g}; it needs less than 1: lower prox or clients.lr")
        return FedNovaPlan(shrink, context.momentum)

    def fold(self, plan: FedNovaPlan, block: Updates) -> Partial:
        p = block.weight if self.weighting == "samples" else torch.ones_like(block.weight)
        steps = work = block.steps.to(p)
        if plan.momentum:
            steps, work = (_effective(block.steps, plan.momentum, shrink).to(p) for shrink in (0.0, plan.shrink))
        elif plan.shrink:
            work = (1.0 - (1.0 - plan.shrink) ** steps) / plan.shrink
        normalised, total = combine(torch.stack([p / work, torch.ones_like(p)]), block.delta)
        sums = {"normalised": normalised, "steps": (p * steps).sum(), "p": p.sum()}
        return Partial.of(block, sums, {"norm": block.norm}, total)

    def finish(
        self, state: NoState, plan: FedNovaPlan, partial: Partial
    ) -> tuple[Tensor, NoState, Mapping[str, float]]:
        p, steps = float(partial.sums["p"]), float(partial.sums["steps"])
        step = partial.sums["normalised"].double() * (steps / p**2)
        return step.float(), state, {"effective_steps": steps / p}


def _effective(steps: Tensor, momentum: float, shrink: float) -> Tensor:
    """(k,) |a_m|_1 of each client."""
    return torch.tensor([effective_steps(made, momentum, shrink) for made in steps.tolist()], dtype=torch.float64)
