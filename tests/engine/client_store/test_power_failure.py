"""Random sequences of rounds, checkpoints and power failures: the file store always agrees with the memory store."""

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

from dragfl.engine.client_store import STATE_FILE, FileStore, Layout, MemoryStore, SlotFile

LAYOUT = Layout.of({"c": "vector", "n": "scalar"}, 3)
CLIENTS = 5
Tensors = dict[str, Tensor]


class CheckedSlotFile(SlotFile):
    """Records which slots are not synced, and fails if a slot that a checkpoint refers to is written."""

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


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / STATE_FILE
        self.round = 0
        self.checkpoints: list[tuple[Tensors, Tensors]] = [({}, {})]  # those that a crash may leave
        self.open()

    def teardown(self) -> None:
        self.folder.cleanup()

    def open(self) -> None:
        self.file = CheckedSlotFile(self.path)
        self.in_memory, self.in_file = MemoryStore(LAYOUT, CLIENTS), FileStore(LAYOUT, CLIENTS, self.file)
        self.forbid()

    def forbid(self) -> None:
        self.file.forbidden = {slot for _, index in self.checkpoints if index for slot in index["slot"].tolist()}

    @rule(
        values=st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.floats(-10, 10, width=32)), max_size=6),
        completes=st.booleans(),
    )
    def run_round(self, values: list[tuple[int, float]], completes: bool) -> None:
        """A round in which some clients get new states; it completes or fails."""
        self.round += 1
        for store in (self.in_memory, self.in_file):
            store.begin(self.round)
            for client, value in values:
                store.stage(client, {"c": torch.full((3,), value), "n": torch.tensor(float(self.round))})
            if completes:
                store.commit()

    @rule(durable=st.booleans())
    def checkpoint(self, durable: bool) -> None:
        """A checkpoint that is durable, or one whose write failed: then this or an older one may be on disk."""
        self.checkpoints.append((self.in_memory.tensors(), self.in_file.tensors()))
        if durable:
            self.in_memory.checkpointed()
            self.in_file.checkpointed()
            self.checkpoints = self.checkpoints[-1:]
        self.forbid()

    @rule(which=st.integers(0, 5))
    def lose_power(self, which: int) -> None:
        chosen = self.checkpoints[which % len(self.checkpoints)]
        if self.path.exists():
            with self.path.open("r+b") as file:
                for slot in self.file.unsynced:
                    file.seek(slot * self.file.stride)
                    file.write(os.urandom(200))
        self.checkpoints = [chosen]
        self.open()
        self.in_memory.restore(chosen[0])
        self.in_file.restore(chosen[1])

    @invariant()
    def agree(self) -> None:
        for client in range(CLIENTS):
            a, b = self.in_memory.read(client), self.in_file.read(client)
            assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        assert self.in_file.lost_states == 0


StoreMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestStores = StoreMachine.TestCase
