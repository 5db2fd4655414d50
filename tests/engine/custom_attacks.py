"""Attacks written as a user would write them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dragfl.types import FederationInfo, Knowledge, NoState, RoundContext, Updates, View


@dataclass(frozen=True)
class ConstantAttack:
    """Sends an update whose coordinates all have one value, such as NaN or infinity."""

    value: float
    knowledge: Knowledge = "own"

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        return replace(view.own, delta=torch.full_like(view.own.delta, self.value)), state


@dataclass(frozen=True)
class RecordingAttack:
    """Sends the clean update and records every view."""

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
class DelayedAttack:
    """Colluding: sends the clean updates for two rounds, then the negated ones."""

    knowledge: Knowledge = "colluding"

    def init(self, info: FederationInfo) -> Count:
        return Count()

    def craft(self, state: Count, view: View, context: RoundContext) -> tuple[Updates, Count]:
        scale = -1.0 if state.rounds >= 2 else 1.0
        return replace(view.own, delta=scale * view.own.delta), Count(state.rounds + 1)


@dataclass(frozen=True)
class TamperingAttack:
    """Sends an invalid weight (`tamper` = "nan" or "negative") or writes into the view (`tamper` = "view")."""

    tamper: str
    knowledge: Knowledge = "own"

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        own = view.own
        if self.tamper == "nan":
            return replace(own, weight=torch.full_like(own.weight, float("nan"))), state
        if self.tamper == "negative":
            return replace(own, weight=torch.full_like(own.weight, -1e9)), state
        for vector in (view.w, view.reference, view.directions):
            if vector is not None:
                vector.mul_(-1.0)
        return own, state


@dataclass(frozen=True)
class GrowingAttack:
    """Multiplies the update by ten in every round."""

    knowledge: Knowledge = "own"

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        return replace(view.own, delta=view.own.delta * 10.0**context.t), state
