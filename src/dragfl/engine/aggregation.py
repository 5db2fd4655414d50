"""Aggregation of blocks: screen the results of a block, fold them with the rule, add the sums in block order.

A worker folds the block it trained, so only sums travel to the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragfl.engine import calls
from dragfl.engine.client import ClientResults
from dragfl.errors import Infeasible
from dragfl.types import Aggregate, Partial, Plan


@dataclass(frozen=True)
class Total:
    """The plan of a first pass that computes only the sum of the updates."""


@dataclass(frozen=True)
class BlockResult:
    """A folded block: its sums, which clients were used, and what the record and the client states need."""

    clients: tuple[int, ...]  # ids; the other fields have the same order
    partial: Partial | None  # None: no usable update, or too few for the rule
    used: Tensor  # (k,) bool
    loss: tuple[float, ...]
    steps: tuple[int, ...]
    states: tuple[Mapping[str, Tensor], ...]
    bytes_up: int
    infeasible: str = ""  # why the rule could not work with these updates


def fold(rule: Aggregate[Any, Any], plan: Plan, results: ClientResults) -> BlockResult:
    """Drop unusable results and fold the rest."""
    used = results.usable()
    updates = results.updates if used.all() else results.updates.select(used)
    partial, reason = None, ""
    if len(updates):
        try:
            partial = Partial.of(updates, {}, {}) if isinstance(plan, Total) else calls.fold(rule, plan, updates)
        except Infeasible as error:
            reason = str(error)
    clients = tuple(results.updates.client.tolist())
    return BlockResult(clients, partial, used, results.loss, results.steps, results.states, results.bytes_up, reason)


class Sums:
    """Adds partials in the order they arrive, in float64 and in place.

    It keeps no reference to a partial: a backend may reuse its memory for the next one.
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
        """The sum of all partials; None if there was none."""
        if not self._count:
            return None
        columns = {name: torch.cat([column[name] for column in self._columns]) for name in self._columns[0]}
        return Partial(self._count, self._total, self._sums, columns, self._extra)


def _wide(value: Tensor) -> Tensor:
    return value.to(torch.float64, copy=True)


def mean_update(first_pass: Iterable[BlockResult]) -> Tensor | None:
    """The mean of this round's usable updates; None if there is none."""
    total = Sums(folded.partial for folded in first_pass).partial
    return None if total is None else total.mean
