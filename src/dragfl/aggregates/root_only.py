"""Training on the root data alone: the control for every rule that uses them.

    step = r,    r the server's update on its root data

The updates of the clients are ignored, so no attack changes the model. The clients of BR-DRAG or FLTrust add something
only if that rule is better than this one. A block folds to nothing but its norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dragfl.lazy import Tensor
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


@dataclass(frozen=True)
class RootPlan:
    root: Tensor


@dataclass(frozen=True)
class RootOnly:
    """Takes the server's own update on root data and ignores the clients: a control."""

    aggregates_extras: ClassVar[bool] = False  # what clients send is ignored
    paper: ClassVar[str] = "control"

    init = no_state

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset({"root"})

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> RootPlan:
        if inputs.root is None:
            raise ValueError("root_only needs the root update; give `root` to begin()")
        return RootPlan(inputs.root)

    def fold(self, plan: RootPlan, block: Updates) -> Partial:
        return Partial.of(block, {}, {"norm": block.norm})

    def finish(self, state: NoState, plan: RootPlan, partial: Partial) -> tuple[Tensor, NoState, Mapping[str, float]]:
        return plan.root, state, {}
