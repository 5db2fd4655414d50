"""No correction: plain local SGD, nothing sent beside the model and the update, no client state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dragfl.corrections.idle import Tensors, no_needs, nothing_kept, nothing_sent, step_unchanged
from dragfl.types import Affine, Fields, RoundContext, no_state


@dataclass(frozen=True)
class NoCorrection:
    """Plain SGD: direction = g."""

    fields: ClassVar[Fields] = {}
    sends: ClassVar[Fields] = {}
    init = no_state
    needs = no_needs
    broadcast = nothing_sent
    client_finish = nothing_kept
    server_finish = step_unchanged

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine()
