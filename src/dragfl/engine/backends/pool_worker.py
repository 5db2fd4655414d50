"""The pool's work inside a worker process: pieces of blocks, trained and folded in slots of shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pkgutil import resolve_name
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.backends.shared_memory import (
    TensorPlace,
    add_prefix,
    copy_into,
    replace_fields,
    select_prefix,
)
from dragfl.engine.backends.worker_process import ParentConnection
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.evaluation import Score
from dragfl.engine.simulator import Worker
from dragfl.types import Partial, RoundContext, Updates

T = TypeVar("T")

Slot = Mapping[str, Tensor]


@dataclass(frozen=True)
class CallSetup:
    """What all tasks of one call have in common: where they find model and broadcast, and where results go."""

    size: int = 0  # of the shared memory
    inputs: Mapping[str, TensorPlace] = field(default_factory=dict)
    # "w", "buffers", "broadcast/NAME", "attack/FIELD", "plan/FIELD"
    slots: tuple[Mapping[str, TensorPlace], ...] = ()
    # "delta", "extra/NAME", "state/NAME" (before), "next_state/NAME" (after), "folded/NAME" (see `flatten_partial`)
    context: RoundContext | None = None
    plan: Any = None  # of the aggregate, without its tensors
    attack: Any = None  # the attack's state without its tensors


@dataclass(frozen=True)
class PieceResult:
    """What a worker returns for some clients of a block, apart from what it wrote into the slot."""

    loss: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    weight: tuple[float, ...] = ()


@dataclass(frozen=True)
class FoldResult:
    """What a worker returns for a folded block, apart from the sums that it wrote into the slot."""

    count: int  # 0: there is no partial
    sums: tuple[str, ...]  # their names
    extra: Mapping[str, NDArray[Any]]  # those that have no place in the slot
    used: tuple[bool, ...]
    bytes_up: int
    infeasible: str


class PoolWorker:
    """The service of a worker process; `entry_point` makes its `Worker` from the tables of the experiment."""

    def __init__(self, parent: ParentConnection, entry_point: str, tables: Mapping[str, Any]) -> None:
        assert parent.memory is not None
        self._memory = parent.memory
        self._worker: Worker = resolve_name(entry_point)(tables)
        self.share(CallSetup())

    def share(self, setup: CallSetup) -> None:
        """Begin a call."""
        self._context = setup.context
        self._memory.map(setup.size)
        self._inputs = self._memory.tensors(setup.inputs)
        self._slots = [self._memory.tensors(slot) for slot in setup.slots]
        self._attack = replace_fields(setup.attack, select_prefix(self._inputs, "attack"))
        self._plan = replace_fields(setup.plan, select_prefix(self._inputs, "plan"))

    def train(self, slot: int, first: int, clients: tuple[int, ...], attackers: frozenset[int]) -> PieceResult:
        """Train these clients into rows of the slot."""
        rows = self._rows(slot, first, clients)
        results = self._worker.train(self._task(rows, clients, attackers), rows["delta"])
        updates = results.updates
        if updates.delta is not rows["delta"]:
            rows["delta"].copy_(updates.delta)
        for name, value in updates.extra.items():
            rows[f"extra/{name}"].copy_(value)
        return _write_states(results, rows)

    def train_and_fold(
        self, slot: int, clients: tuple[int, ...], attackers: frozenset[int]
    ) -> tuple[PieceResult, FoldResult]:
        """Train a whole block and fold it; its updates stay in this process."""
        rows = self._rows(slot, 0, clients)
        results = self._worker.train(self._task(rows, clients, attackers))
        return _write_states(results, rows), self._fold(slot, results)

    def gradients(self, slot: int, first: int, clients: tuple[int, ...], attackers: frozenset[int]) -> PieceResult:
        """Write the full gradients of these clients into rows of the slot."""
        rows = self._rows(slot, first, clients)
        updates = self._worker.gradients(self._task(rows, clients, attackers), rows["delta"])
        return PieceResult(weight=tuple(updates.weight.tolist()))

    def fold(self, slot: int, clients: tuple[int, ...], pieces: list[PieceResult]) -> FoldResult:
        """Fold a block whose updates are in the slot."""
        return self._fold(slot, join_results(clients, self._slots[slot], pieces))

    def _fold(self, slot: int, results: ClientResults) -> FoldResult:
        target, result = self._slots[slot], fold(self._worker.aggregate, self._plan, results)
        sums = flatten_partial(result.partial)
        extra = {n: v.numpy() for n, v in sums.items() if not copy_into(target.get(f"folded/{n}"), v)}
        count = result.partial.count if result.partial else 0
        used = tuple(result.used.tolist())
        return FoldResult(count, tuple(sums), extra, used, result.bytes_up, result.infeasible)

    def train_root(self) -> None:
        """Write the update of the root data into the first slot."""
        assert self._context is not None
        update = self._worker.train_root(self._inputs["w"], self._context, self._inputs.get("buffers"))
        self._slots[0]["delta"].copy_(update)

    def score(self, block: int) -> Score:
        return self._worker.score(self._inputs["w"], block, self._inputs.get("buffers"))

    def _rows(self, slot: int, first: int, clients: tuple[int, ...]) -> dict[str, Tensor]:
        return {name: value[first : first + len(clients)] for name, value in self._slots[slot].items()}

    def _task(self, rows: Slot, clients: tuple[int, ...], attackers: frozenset[int]) -> TrainTask:
        before = select_prefix(rows, "state")
        states = tuple({name: value[i] for name, value in before.items()} for i in range(len(clients)))
        broadcast = select_prefix(self._inputs, "broadcast")
        assert self._context is not None
        return TrainTask(clients, self._inputs["w"], broadcast, self._context, states, attackers, self._attack)


def _write_states(results: ClientResults, rows: Slot) -> PieceResult:
    """Write the clients' new states into their rows; the rest of the results, without updates and extras."""
    for i, state in enumerate(results.states):
        for name, value in state.items():
            rows[f"next_state/{name}"][i].copy_(value)
    return PieceResult(results.loss, results.steps, tuple(results.updates.weight.tolist()))


def join_results(clients: tuple[int, ...], slot: Slot, pieces: list[PieceResult]) -> ClientResults:
    """The results of a block: views of its slot."""
    k = len(clients)
    delta, states = slot["delta"][:k], join_states(k, slot)
    extra = {name: value[:k] for name, value in select_prefix(slot, "extra").items()}
    loss, steps = _join(p.loss for p in pieces), _join(p.steps for p in pieces)
    updates = Updates(delta, join_weights(pieces), torch.tensor(clients), extra, torch.tensor(steps))
    return ClientResults(updates, loss, steps, tuple(states))


def join_weights(pieces: list[PieceResult]) -> Tensor:
    return torch.tensor(_join(p.weight for p in pieces), dtype=torch.float64)


def join_states(k: int, slot: Slot) -> list[Mapping[str, Tensor]]:
    """The new states of the clients of a block."""
    after = select_prefix(slot, "next_state")
    return [{name: value[i] for name, value in after.items()} for i in range(k)]


def join_fold(clients: tuple[int, ...], folded: FoldResult, slot: Slot, pieces: list[PieceResult]) -> BlockResult:
    """A block that a worker has folded: views of its slot."""
    sums = {name: slot[f"folded/{name}"] for name in folded.sums if name not in folded.extra}
    sums |= {name: torch.as_tensor(value) for name, value in folded.extra.items()}
    partial = unflatten_partial(folded.count, sums)
    loss, steps = _join(p.loss for p in pieces), _join(p.steps for p in pieces)
    states, used = tuple(join_states(len(folded.used), slot)), torch.tensor(folded.used)
    return BlockResult(clients, partial, used, loss, steps, states, folded.bytes_up, folded.infeasible)


def flatten_partial(partial: Partial | None) -> dict[str, Tensor]:
    """The tensors of a partial by name: "total", "sums/NAME", "per_client/NAME", "extra/NAME"."""
    sums: dict[str, Tensor] = {}
    if partial is not None:
        sums["total"] = partial.total
        for kind in ("sums", "per_client", "extra"):
            sums |= add_prefix(getattr(partial, kind), kind)
    return sums


def unflatten_partial(count: int, sums: Mapping[str, Tensor]) -> Partial | None:
    if not count:
        return None
    return Partial(count, sums["total"], *(select_prefix(sums, kind) for kind in ("sums", "per_client", "extra")))


def _join(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
