"""The control for every method with trusted data: ignore the clients and follow the root update.

BR-DRAG and FLTrust are worth their clients only where they beat a server that trains alone on its own samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragfl.types import FederationInfo, Need, Partial, Plan, RoundContext, RoundInputs, State, Updates, no_state

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RootPlan:
    root: Tensor


@dataclass(frozen=True)
class RootOnly:
    """step = the update of the root data."""

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
