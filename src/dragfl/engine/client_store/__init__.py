"""What clients keep between rounds: one row a client of fixed layout, zero until the client is first seen.

A round begins, reads the rows of the block that it trains, stages new ones, and commits them as a whole at its end; a
round that fails leaves no trace. A checkpoint takes `tensors()` with it and, once it is durable, says `checkpointed()`.

Small states live in memory and travel inside the checkpoint; larger ones in a file of slots beside it (`slab.py`), of
which the checkpoint holds the index. Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from dragfl.engine.client_store.layout import Layout
from dragfl.engine.client_store.memory import MemoryStore
from dragfl.engine.client_store.slab import SlabStore
from dragfl.types import FederationInfo, Fields

__all__ = ["ClientStore", "Layout", "MemoryStore", "SlabStore", "open_store"]

SLAB = "clients.slab"


class ClientStore(Protocol):
    @property
    def lost(self) -> int:
        """How many of the clients read in this round had lost their state and went on from zeros."""

    def begin(self, round: int) -> None:
        """Start a round; whatever one that failed has left staged is dropped."""

    def read(self, client: int) -> Mapping[str, Tensor]:
        """The committed state of one client."""

    def stage(self, client: int, state: Mapping[str, Tensor]) -> None:
        """The state of one client after this round, should the round come to its end."""

    def commit(self) -> None:
        """The round has come to its end: what was staged is what is read from now on."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold of everything committed; all that it refers to is durable."""

    def checkpointed(self) -> None:
        """The checkpoint that holds the last `tensors()` is durable, and no older one will be asked for."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what these tensors hold; a ValueError if they cannot be of this store."""


def open_store(
    fields: Fields,
    info: FederationInfo,
    memory_mb: int,
    on_missing: Literal["error", "zero"],
    folder: Path | None = None,
) -> ClientStore:
    """In memory up to `memory_mb`, beyond it in a file: in `folder`, by default an anonymous temporary file."""
    layout = Layout.of(fields, info.dim, info.device)
    if info.clients * layout.nbytes <= memory_mb << 20:
        return MemoryStore(layout, info.clients)
    return SlabStore(layout, info.clients, folder / SLAB if folder is not None else None, on_missing)
