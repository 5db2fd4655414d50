"""The halves of a correction that do nothing, to be named in a class body: `broadcast = nothing_sent`.

A correction then spells out only what its paper adds, and still satisfies the whole contract by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dragfl.lazy import Tensor
from dragfl.types import FederationInfo, LocalResult, RoundContext, RoundInputs, State

Tensors = Mapping[str, "Tensor"]


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
