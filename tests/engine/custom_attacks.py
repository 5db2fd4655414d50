"""Attacks of a user's own, as any user may write them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dragfl.types import FederationInfo, Knowledge, NoState, RoundContext, Updates, View


@dataclass(frozen=True)
class Sends:
    """Sends a row of one number: NaN, an infinity, anything."""

    value: float
    knowledge: Knowledge = "own"

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        return replace(view.own, delta=torch.full_like(view.own.delta, self.value)), state


@dataclass(frozen=True)
class Honest:
    """Counted as an attacker and sends what it should; notes every view it is given."""

    knowledge: Knowledge = "own"
    views: list[View] = field(default_factory=list)

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        self.views.append(view)
        return view.own, state


@dataclass(frozen=True)
class Count:
    rounds: int = 0


@dataclass(frozen=True)
class Patient:
    """Colludes, and strikes only after two rounds of its own counting."""

    knowledge: Knowledge = "colluding"

    def init(self, info: FederationInfo) -> Count:
        return Count()

    def craft(self, state: Count, view: View, context: RoundContext) -> tuple[Updates, Count]:
        scale = -1.0 if state.rounds >= 2 else 1.0
        return replace(view.own, delta=scale * view.own.delta), Count(state.rounds + 1)
