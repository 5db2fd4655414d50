"""A block folded by the aggregate: whatever becomes of clients' updates, sums are all that the server needs of them.

A worker folds what it trained, so that only sums travel. They are added in block order, so it does not matter whose
block was ready first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dragfl.errors import Infeasible
from dragfl.types import Aggregate, Partial, Plan, Updates

if TYPE_CHECKING:
    from dragfl.engine.worker import Sent


@dataclass(frozen=True)
class Total:
    """The plan of a first pass: nothing but the sum of the updates."""


@dataclass(frozen=True)
class Folded:
    """What is left of a block: sums, who was used, and what the record and the clients keep."""

    partial: Partial | None  # None: no update can be used, or too few for the rule
    extra: Mapping[str, Tensor]  # sums of what clients send beside their update, and of their steps
    used: Tensor  # (k,) bool
    loss: tuple[float, ...]
    steps: tuple[int, ...]
    states: tuple[Mapping[str, Tensor], ...]
    bytes_up: int
    infeasible: str = ""  # why the rule could not work with what there was


def fold(rule: Aggregate, plan: Plan, sent: Sent) -> Folded:
    """Drop what is not finite and fold the rest."""
    used = sent.usable()
    updates = sent.updates if used.all() else sent.updates.select(used)
    partial, why = None, ""
    extra: dict[str, Tensor] = {}
    if len(updates):
        extra = {name: value.sum(0).double() for name, value in updates.extra.items()}
        extra["steps"] = updates.steps.sum().double()
        try:
            partial = Partial.of(updates, {}, {}) if isinstance(plan, Total) else rule.fold(plan, updates)
            partial = _apart(partial, updates)
        except Infeasible as error:
            why = str(error)
    return Folded(partial, extra, used, sent.loss, sent.steps, sent.states, sent.bytes_up, why)


def _apart(partial: Partial, block: Updates) -> Partial:
    """A partial without views of its block: the block's memory is used again when the next one is asked for."""
    taken = {value.untyped_storage().data_ptr() for value in (block.delta, *block.extra.values())}

    def own(value: Tensor) -> Tensor:
        return value.clone() if value.untyped_storage().data_ptr() in taken else value

    sums, columns = ({n: own(v) for n, v in part.items()} for part in (partial.sums, partial.per_client))
    return Partial(partial.count, own(partial.total), sums, columns)


class Sums:
    """Partials added in the order they come: float64 across blocks, in place from the second block on."""

    def __init__(self, parts: Iterable[Partial | None] = ()) -> None:
        self._total: Partial | None = None
        self._columns: list[Mapping[str, Tensor]] = []
        self._own = False
        for part in parts:
            self.add(part)

    def add(self, part: Partial | None) -> None:
        if part is None:
            return
        self._columns.append(part.per_client)
        bare = Partial(part.count, part.total, part.sums, {})
        if self._total is None:
            self._total = bare
        elif not self._own:
            self._total, self._own = self._total + bare, True
        else:
            before = self._total
            before.total.add_(bare.total)
            for name, value in before.sums.items():
                value.add_(bare.sums[name])
            self._total = Partial(before.count + bare.count, before.total, before.sums, {})

    @property
    def partial(self) -> Partial | None:
        """All of them as one; None if there was none."""
        if self._total is None:
            return None
        names = self._columns[0]
        columns = {name: torch.cat([column[name] for column in self._columns]) for name in names}
        return Partial(self._total.count, self._total.total, self._total.sums, columns)


def mean_update(first_pass: Iterable[Folded]) -> Tensor | None:
    """The mean of this round's usable updates, for a rule that must know it before it folds."""
    total = Sums(folded.partial for folded in first_pass).partial
    return None if total is None else (total.total.double() / total.count).float()
