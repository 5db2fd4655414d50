"""A block folded by the aggregate: whatever becomes of clients' updates, sums are all that the server needs of them.

A worker folds what it trained, so that only sums travel. They are added in block order, so it does not matter whose
block was ready first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dragfl.errors import Infeasible
from dragfl.types import Aggregate, Partial, Plan

if TYPE_CHECKING:
    from dragfl.engine.worker import ClientResults


@dataclass(frozen=True)
class Total:
    """The plan of a first pass: nothing but the sum of the updates."""


@dataclass(frozen=True)
class BlockResult:
    """What is left of a block: sums, who was used, and what the record and the clients keep."""

    partial: Partial | None  # None: no update can be used, or too few for the rule
    used: Tensor  # (k,) bool
    loss: tuple[float, ...]
    steps: tuple[int, ...]
    states: tuple[Mapping[str, Tensor], ...]
    bytes_up: int
    infeasible: str = ""  # why the rule could not work with what there was


def fold(rule: Aggregate[Any, Any], plan: Plan, sent: ClientResults) -> BlockResult:
    """Drop what is not finite and fold the rest."""
    used = sent.usable()
    updates = sent.updates if used.all() else sent.updates.select(used)
    partial, why = None, ""
    if len(updates):
        try:
            partial = Partial.of(updates, {}, {}) if isinstance(plan, Total) else rule.fold(plan, updates)
        except Infeasible as error:
            why = str(error)
    return BlockResult(partial, used, sent.loss, sent.steps, sent.states, sent.bytes_up, why)


class Sums:
    """Partials added in the order they come, in float64 and in place.

    Nothing of a partial is kept as it is: its memory may be used again when the next one is asked for.
    """

    def __init__(self, parts: Iterable[Partial | None] = ()) -> None:
        self._count = 0
        self._total = torch.zeros(())
        self._sums: dict[str, Tensor] = {}
        self._extra: dict[str, Tensor] = {}
        self._columns: list[Mapping[str, Tensor]] = []
        for part in parts:
            self.add(part)

    def add(self, part: Partial | None) -> None:
        if part is None:
            return
        if not self._count:
            self._total = _wide(part.total)
            self._sums = {name: _wide(value) for name, value in part.sums.items()}
            self._extra = {name: _wide(value) for name, value in part.extra.items()}
        else:
            self._total.add_(part.total)
            for name, value in self._sums.items():
                value.add_(part.sums[name])
            for name, value in self._extra.items():
                value.add_(part.extra[name])
        self._count += part.count
        self._columns.append({name: value.clone() for name, value in part.per_client.items()})

    @property
    def partial(self) -> Partial | None:
        """All of them as one; None if there was none."""
        if not self._count:
            return None
        columns = {name: torch.cat([column[name] for column in self._columns]) for name in self._columns[0]}
        return Partial(self._count, self._total, self._sums, columns, self._extra)


def _wide(value: Tensor) -> Tensor:
    return value.to(torch.float64, copy=True)


def mean_update(first_pass: Iterable[BlockResult]) -> Tensor | None:
    """The mean of this round's usable updates, for a rule that must know it before it folds."""
    total = Sums(folded.partial for folded in first_pass).partial
    return None if total is None else total.mean
