"""No correction: plain local SGD. Nothing but the model and the update is sent; clients keep no state.

The methods of a correction that do nothing are functions here, for the class bodies of the others
(`broadcast = nothing_sent`): a correction then spells out only what its paper adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dragfl.lazy import Tensor
from dragfl.types import Affine, FederationInfo, Fields, LocalResult, RoundContext, RoundInputs, State, no_state

Tensors = Mapping[str, Tensor]


def no_needs(self: Any, state: State) -> frozenset[str]:
    return frozenset()


def nothing_sent(self: Any, state: State, context: RoundContext, inputs: RoundInputs) -> Tensors:
    return {}


def nothing_kept(
    self: Any, result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
) -> tuple[Tensors, Tensors]:
    return {}, mine


def step_unchanged(
    self: Any, state: State, aggregated: Tensors, step: Tensor, info: FederationInfo, context: RoundContext
) -> tuple[Tensor, State]:
    return step, state


@dataclass(frozen=True)
class NoCorrection:
    """Trains with plain local SGD."""

    fields: ClassVar[Fields] = {}
    sends: ClassVar[Fields] = {}
    init = no_state
    needs = no_needs
    broadcast = nothing_sent
    client_finish = nothing_kept
    server_finish = step_unchanged

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine()
