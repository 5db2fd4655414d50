"""The state that each client keeps between rounds: float32 fields of a fixed layout, zero before its first round.

A round calls `begin`, reads the states of the clients it trains, stages new ones and commits them all at its end. A
round that fails changes nothing. A checkpoint saves `tensors()` and calls `checkpointed()` once it is durable.

Small states stay in memory and are saved inside the checkpoint. Larger ones are in a file of slots in the run directory
(`file_store.py`), and the checkpoint holds an index of that file. Results are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from dragfl.engine.client_store.file_store import FileStore
from dragfl.engine.client_store.layout import Layout
from dragfl.engine.client_store.memory_store import MemoryStore
from dragfl.engine.client_store.slot_file import SlotFile
from dragfl.types import FederationInfo, Fields

__all__ = ["STATE_FILE", "ClientStore", "FileStore", "Layout", "MemoryStore", "SlotFile", "open_store"]

STATE_FILE = "client_states.bin"


class ClientStore(Protocol):
    @property
    def lost_states(self) -> int:
        """Number of clients read in this round whose state could not be read and was replaced by zeros."""

    def begin(self, round: int) -> None:
        """Start a round. States staged by a round that failed are dropped."""

    def read(self, client: int) -> Mapping[str, Tensor]:
        """Return the committed state of one client."""

    def stage(self, client: int, state: Mapping[str, Tensor]) -> None:
        """Set the state of one client after this round. It takes effect with `commit`."""

    def commit(self) -> None:
        """Make all staged states the committed ones."""

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint must save of the committed states; files that it refers to are on disk."""

    def checkpointed(self) -> None:
        """The checkpoint with the last `tensors()` is durable; older checkpoints are no longer needed."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to the states of a checkpoint; ValueError if the tensors do not belong to such a store."""


def open_store(
    fields: Fields,
    info: FederationInfo,
    memory_mb: int,
    on_missing: Literal["error", "zero"],
    folder: Path | None = None,
) -> ClientStore:
    """A store in memory up to `memory_mb`, else in a file: in `folder`, or an anonymous temporary file without one."""
    layout = Layout.of(fields, info.dim, info.device)
    if info.clients * layout.nbytes <= memory_mb << 20:
        return MemoryStore(layout, info.clients)
    file = SlotFile(layout, None if folder is None else folder / STATE_FILE)
    return FileStore(layout, info.clients, file, on_missing)
