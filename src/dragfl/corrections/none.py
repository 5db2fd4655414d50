"""No correction: plain local SGD, nothing sent beside the model and the update, no client state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dragfl.types import Affine, Done, NoState, Now, Setting, State

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class NoCorrection:
    """direction = g."""

    @property
    def fields(self) -> Mapping[str, Literal["vector", "scalar"]]:
        return {}

    def init(self, setting: Setting) -> State:
        return NoState()

    def broadcast(self, state: State, now: Now) -> Mapping[str, Tensor]:
        return {}

    def affine(self, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], now: Now) -> Affine:
        return Affine()

    def client_finish(
        self, done: Done, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], now: Now
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        return {}, mine

    def server_finish(
        self, state: State, sums: Mapping[str, Tensor], step: Tensor, setting: Setting, now: Now
    ) -> tuple[Tensor, State]:
        return step, state
