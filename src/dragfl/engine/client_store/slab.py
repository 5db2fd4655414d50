"""Client states in a file of slots that survives kill -9 at any byte: shadow paging.

A slot that a checkpoint refers to is never written again. A new state goes to a free slot at once, so that staged rows
take no memory; the round's commit turns the index to it. The checkpoint holds the index client -> (slot, round) and is
written after the slots are on the disk, so whichever checkpoint a crash leaves behind finds its slots as they were:

    free -> staged -> (commit) current -> (tensors) pinned -> ... -> (the next checkpoint is durable) free

A round that fails frees what it staged, a row that no checkpoint saw is free as soon as it is replaced, and a pinned
one when a newer checkpoint without it is durable. The file therefore holds at most three rows a client: the last
checkpoint's, the current one and a staged one; which slots those are does not show in any result.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dragfl.engine.client_store.layout import Layout, check_clients
from dragfl.engine.client_store.slots import SlotFile, Unreadable
from dragfl.errors import DamagedRun

NOWHERE = -1  # the slot of a state whose place in the file is gone


class Place(NamedTuple):
    slot: int
    round: int


class SlabStore:
    """Rows in a file; in memory only the index and the rows in use."""

    def __init__(
        self, layout: Layout, clients: int, path: Path | None = None, on_lost: Literal["error", "zero"] = "error"
    ) -> None:
        self._layout, self._clients, self._on_lost = layout, clients, on_lost
        self._file = SlotFile(layout, path)
        self._round = 0
        self._lost: set[int] = set()
        self._staged: dict[int, int] = {}  # client -> slot
        self._current: dict[int, Place] = {}
        self._offered: frozenset[int] = frozenset()  # slots of the last index given to a checkpoint
        self._pinned: set[int] = set()  # slots of every checkpoint that may be the one on the disk
        self._free: list[int] | None = None  # a heap, so that the file stays short; made when the file is opened

    @property
    def lost(self) -> int:
        return len(self._lost)

    def begin(self, round: int) -> None:
        self._release(self._staged.values())
        self._staged, self._lost, self._round = {}, set(), round

    def read(self, client: int) -> Mapping[str, Tensor]:
        place = self._current.get(client)
        if place is None:
            return self._layout.zeros()
        try:
            if place.slot == NOWHERE:
                raise Unreadable("the file was too short for it")
            return self._file.read(place.slot, client, place.round)
        except Unreadable as error:
            if self._on_lost == "error":
                raise self._damaged(client, place.round, error) from None
            self._lost.add(client)
            return self._layout.zeros()

    def stage(self, client: int, state: Mapping[str, Tensor]) -> None:
        self._layout.check(state)
        if client not in self._staged:
            self._staged[client] = self._take()
        self._file.write(self._staged[client], client, self._round, state)

    def commit(self) -> None:
        replaced = [self._current[m].slot for m in self._staged if m in self._current]
        self._current |= {m: Place(slot, self._round) for m, slot in self._staged.items()}
        self._staged = {}
        self._release(slot for slot in replaced if slot != NOWHERE and slot not in self._pinned)

    def tensors(self) -> dict[str, Tensor]:
        """The index: `client`, `slot` and `round` (n,), after the slots it names are on the disk."""
        if not self._current:
            self._offered = frozenset()
            return {}
        self._file.sync()
        self._offered = frozenset(self._slots())
        self._pinned |= self._offered
        clients = sorted(self._current)
        places = [self._current[m] for m in clients]
        return {
            "client": torch.tensor(clients),
            "slot": torch.tensor([place.slot for place in places]),
            "round": torch.tensor([place.round for place in places]),
        }

    def checkpointed(self) -> None:
        self._release(self._pinned - self._offered)
        self._pinned = set(self._offered)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        index = _index(tensors, self._clients)
        there = self._file.count()
        for client, place in index.items():
            if place.slot >= there:
                if self._on_lost == "error":  # now, rather than when the client is next sampled
                    raise self._damaged(client, place.round, Unreadable(f"the file ends at slot {there}"))
                index[client] = Place(NOWHERE, place.round)
        self._current, self._staged, self._lost, self._free = index, {}, set(), None
        self._offered = frozenset(self._slots())
        self._pinned = set(self._offered)

    def _slots(self) -> Iterable[int]:
        return (place.slot for place in self._current.values() if place.slot != NOWHERE)

    def _take(self) -> int:
        """A slot that nothing refers to. In a file from before a crash that is all the checkpoint does not name."""
        if self._free is None:
            self._free = [slot for slot in range(self._file.count()) if slot not in self._pinned]
        if not self._free:
            self._free = list(self._file.grow(self._clients))
        return heapq.heappop(self._free)

    def _release(self, slots: Iterable[int]) -> None:
        for slot in slots:
            assert self._free is not None  # there is nothing to release before something was taken
            heapq.heappush(self._free, slot)

    def _damaged(self, client: int, round: int, error: Unreadable) -> DamagedRun:
        path = self._file.path
        what = f"the state of client {client} from round {round} is lost ({error})"
        if path is None:
            return DamagedRun(f'{what}; set state.on_missing = "zero" to go on from zeros')
        spec = path.parent / "spec.toml"
        return DamagedRun(
            f'{path}: {what}; restore the file, or set state.on_missing = "zero" in {spec} to go on from zeros, '
            f"then: dragfl resume {path.parent}"
        )


def _index(tensors: Mapping[str, Tensor], clients: int) -> dict[int, Place]:
    """client -> place, checked: a checkpoint that names a slot twice would give one client the state of another."""
    if not tensors:
        return {}
    if sorted(tensors) != ["client", "round", "slot"]:
        raise ValueError(f"it holds {sorted(tensors)} of the clients, and not an index of their states")
    columns = {name: [int(value) for value in column.tolist()] for name, column in tensors.items()}
    check_clients(columns["client"], clients)
    used = [slot for slot in columns["slot"] if slot != NOWHERE]
    if len(set(used)) != len(used) or any(slot < NOWHERE for slot in used):
        raise ValueError("its index of client states names a slot twice or one that cannot be")
    rows = zip(columns["client"], columns["slot"], columns["round"], strict=True)
    return {client: Place(slot, round) for client, slot, round in rows}
