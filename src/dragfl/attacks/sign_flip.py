"""Sign flip: every attacker sends its own update negated, b = -kappa g."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dragfl.arrays import Array, like, matrix
from dragfl.attacks.common import check_positive
from dragfl.types import Knowledge, NoState, RoundContext, Strength, Updates, View, no_state


def sign_flip(own: Array, scale: float = 1.0) -> Array:
    """-scale * own, for each attacker's clean update (f, d)."""
    return like(-scale * matrix("sign_flip", own), own)


@dataclass(frozen=True)
class SignFlip:
    """Sends the negated update.

    | argument | symbol |
    |---|---|
    | scale | kappa > 0 |
    """

    scale: float = 1.0
    knowledge: ClassVar[Knowledge] = "own"
    strength: ClassVar[Strength] = ("scale", 0.25, 16.0)
    init = no_state

    def __post_init__(self) -> None:
        check_positive("sign_flip", scale=self.scale)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return replace(view.own, delta=sign_flip(view.own.delta, self.scale)), state
