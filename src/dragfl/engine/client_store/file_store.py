"""Client states in a file of slots that survives a crash at any byte (shadow paging).

A slot that a checkpoint refers to is never overwritten. A new state is written to a free slot at once, so staged states
take no memory; `commit` points the index to it. The checkpoint holds the index client -> (slot, round) and is written
after the slots are on disk. Whichever checkpoint a crash leaves behind therefore finds its slots unchanged:

    free -> staged -> (commit) current -> (tensors) pinned -> ... -> (the next checkpoint is durable) free

A failed round frees the slots it staged. A slot that no checkpoint refers to is freed as soon as its client has a newer
state, a pinned slot when a newer checkpoint is durable. The file holds at most three slots a client: of the last
checkpoint, current and staged. The choice of slots does not affect any result.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dragfl.engine.client_store.layout import Layout, check_clients
from dragfl.engine.client_store.slot_file import SlotFile, UnreadableSlot
from dragfl.errors import DamagedRun

MISSING = -1  # slot number of a state whose slot is no longer in the file


class Place(NamedTuple):
    """Where the state of a client is, and the round that wrote it."""

    slot: int
    round: int


class FileStore:
    """States in a file; only the index and the states in use are in memory."""

    def __init__(
        self, layout: Layout, clients: int, file: SlotFile, on_missing: Literal["error", "zero"] = "error"
    ) -> None:
        self._layout, self._clients, self._file, self._on_missing = layout, clients, file, on_missing
        self._round = 0
        self._lost: set[int] = set()
        self._staged: dict[int, int] = {}  # client -> slot
        self._current: dict[int, Place] = {}
        self._offered: frozenset[int] = frozenset()  # slots of the last index returned to a checkpoint
        self._pinned: set[int] = set()  # slots of every checkpoint that may be the one on disk
        self._free: list[int] | None = None  # a heap, so that the file stays short; made when the file is opened

    @property
    def lost_states(self) -> int:
        return len(self._lost)

    def begin(self, round: int) -> None:
        self._release(self._staged.values())
        self._staged, self._lost, self._round = {}, set(), round

    def read(self, client: int) -> Mapping[str, Tensor]:
        place = self._current.get(client)
        if place is None:
            return self._layout.zeros()
        try:
            if place.slot == MISSING:
                raise UnreadableSlot("the file was truncated")
            return self._file.read(place.slot, client, place.round)
        except UnreadableSlot as error:
            if self._on_missing == "error":
                raise self._damaged(client, place.round, error) from None
            self._lost.add(client)
            return self._layout.zeros()

    def stage(self, client: int, state: Mapping[str, Tensor]) -> None:
        self._layout.check(state)
        if client not in self._staged:
            self._staged[client] = self._take_free_slot()
        self._file.write(self._staged[client], client, self._round, state)

    def commit(self) -> None:
        replaced = [self._current[m].slot for m in self._staged if m in self._current]
        self._current |= {m: Place(slot, self._round) for m, slot in self._staged.items()}
        self._staged = {}
        self._release(slot for slot in replaced if slot != MISSING and slot not in self._pinned)

    def tensors(self) -> dict[str, Tensor]:
        """The index: `client`, `slot` and `round` (n,). The slots are on disk when it returns."""
        if not self._current:
            self._offered = frozenset()
            return {}
        self._file.sync()
        self._offered = frozenset(self._current_slots())
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
        index = _read_index(tensors, self._clients)
        slots = self._file.count()
        for client, place in index.items():
            try:
                if place.slot >= slots:
                    raise UnreadableSlot(f"the file has only {slots} slots")
                if self._on_missing == "error" and place.slot != MISSING:
                    self._file.read(place.slot, client, place.round)
            except UnreadableSlot as error:  # now: after more rounds a copy of the file would be too old
                if self._on_missing == "error":
                    raise self._damaged(client, place.round, error) from None
                index[client] = Place(MISSING, place.round)
        self._current, self._staged, self._lost, self._free = index, {}, set(), None
        self._offered = frozenset(self._current_slots())
        self._pinned = set(self._offered)

    def _current_slots(self) -> Iterable[int]:
        return (place.slot for place in self._current.values() if place.slot != MISSING)

    def _take_free_slot(self) -> int:
        """A slot that nothing refers to. After a restart these are all slots that the checkpoint does not name."""
        if self._free is None:
            self._free = [slot for slot in range(self._file.count()) if slot not in self._pinned]
        if not self._free:
            self._free = list(self._file.grow(self._clients))
        return heapq.heappop(self._free)

    def _release(self, slots: Iterable[int]) -> None:
        for slot in slots:
            assert self._free is not None  # a slot was taken before one can be released
            heapq.heappush(self._free, slot)

    def _damaged(self, client: int, round: int, error: UnreadableSlot) -> DamagedRun:
        path = self._file.path
        problem = f"cannot read the state of client {client} from round {round} ({error})"
        if path is None:
            return DamagedRun(f'{problem}; set state.on_missing = "zero" to continue from zeros')
        spec = path.parent / "spec.toml"
        return DamagedRun(
            f'{path}: {problem}; restore the file, or set state.on_missing = "zero" in {spec} to continue from zeros, '
            f"then: dragfl resume {path.parent}"
        )


def _read_index(tensors: Mapping[str, Tensor], clients: int) -> dict[int, Place]:
    """client -> place, checked: an index with a slot twice would give one client the state of another."""
    if not tensors:
        return {}
    if sorted(tensors) != ["client", "round", "slot"]:
        raise ValueError(f"the client states have columns {sorted(tensors)}; expected an index: client, round, slot")
    columns = {name: [int(value) for value in column.tolist()] for name, column in tensors.items()}
    check_clients(columns["client"], clients)
    used = [slot for slot in columns["slot"] if slot != MISSING]
    if len(set(used)) != len(used) or any(slot < MISSING for slot in used):
        raise ValueError("the index of client states has a negative slot or the same slot twice")
    rows = zip(columns["client"], columns["slot"], columns["round"], strict=True)
    return {client: Place(slot, round) for client, slot, round in rows}
