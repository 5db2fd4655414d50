"""Random histories with power failures: the slab must always agree with the store that keeps everything in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from torch import Tensor

from dragfl.engine.client_store import Layout, MemoryStore, SlabStore
from dragfl.engine.client_store.slots import SlotFile

LAYOUT = Layout.of({"c": "vector", "n": "scalar"}, 3)
CLIENTS = 5
Tensors = dict[str, Tensor]


class _Watched(SlotFile):
    """Knows which slots a power failure would spoil, and refuses to write where a checkpoint may look."""

    def __init__(self, path: Path) -> None:
        super().__init__(LAYOUT, path)
        self.unsynced: set[int] = set()
        self.forbidden: set[int] = set()

    def write(self, slot: int, client: int, round: int, state: Mapping[str, Tensor]) -> None:
        assert slot not in self.forbidden
        self.unsynced.add(slot)
        super().write(slot, client, round, state)

    def sync(self) -> None:
        super().sync()
        self.unsynced.clear()


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "clients.slab"
        self.round = 0
        self.survivors: list[tuple[Tensors, Tensors]] = [({}, {})]  # checkpoints that a crash may leave behind
        self.open()

    def teardown(self) -> None:
        self.folder.cleanup()

    def open(self) -> None:
        self.memory, self.slab = MemoryStore(LAYOUT, CLIENTS), SlabStore(LAYOUT, CLIENTS, self.path)
        self.slab._file = self.file = _Watched(self.path)
        self.forbid()

    def forbid(self) -> None:
        self.file.forbidden = {slot for _, index in self.survivors if index for slot in index["slot"].tolist()}

    @rule(
        values=st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.floats(-10, 10, width=32)), max_size=6),
        ends=st.booleans(),
    )
    def play(self, values: list[tuple[int, float]], ends: bool) -> None:
        """A round in which some clients get new states, and which comes to its end or fails."""
        self.round += 1
        for store in (self.memory, self.slab):
            store.begin(self.round)
            for client, value in values:
                store.stage(client, {"c": torch.full((3,), value), "n": torch.tensor(float(self.round))})
            if ends:
                store.commit()

    @rule(durable=st.booleans())
    def checkpoint(self, durable: bool) -> None:
        """Written; and either known to be durable, or it failed at a point that left no one knows what."""
        self.survivors.append((self.memory.tensors(), self.slab.tensors()))
        if durable:
            self.memory.checkpointed()
            self.slab.checkpointed()
            self.survivors = self.survivors[-1:]
        self.forbid()

    @rule(which=st.integers(0, 5))
    def lose_power(self, which: int) -> None:
        chosen = self.survivors[which % len(self.survivors)]
        if self.path.exists():
            with self.path.open("r+b") as file:
                for slot in self.file.unsynced:
                    file.seek(slot * self.file.stride)
                    file.write(os.urandom(200))
        self.survivors = [chosen]
        self.open()
        self.memory.restore(chosen[0])
        self.slab.restore(chosen[1])

    @invariant()
    def agree(self) -> None:
        for client in range(CLIENTS):
            a, b = self.memory.read(client), self.slab.read(client)
            assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        assert self.slab.lost == 0


Stores.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestStores = Stores.TestCase
