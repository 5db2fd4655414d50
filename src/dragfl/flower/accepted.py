"""Which round of each client the server has accepted: the client store of a federation whose states are at the clients.

A client is never told that its reply was refused, late or lost. So every message to it names `accepted`, the round of
its last result that entered the model, and the client continues from the state of that round. `durable` is the same
at the last checkpoint: a client keeps that state too, and a server that returns to its checkpoint finds it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

COLUMN = "accepted"


class Accepted:
    """The last accepted round of each client, from 1; 0 if there is none."""

    def __init__(self, clients: int) -> None:
        self.accepted, self.durable = [0] * clients, [0] * clients
        self._offered = list(self.durable)
        self._staged: set[int] = set()
        self._lost: set[int] = set()
        self._round = 0

    @property
    def lost_states(self) -> int:
        return len(self._lost)

    def lose(self, client: int) -> None:
        """The client had no state of the accepted round and has trained from zeros."""
        self._lost.add(client)

    def begin(self, round: int) -> None:
        self._staged, self._lost, self._round = set(), set(), round

    def read(self, client: int) -> Mapping[str, Tensor]:
        return {}

    def stage(self, client: int, state: Mapping[str, Tensor]) -> None:
        self._staged.add(client)

    def commit(self) -> None:
        for client in self._staged:
            self.accepted[client] = self._round
        self._staged = set()

    def tensors(self) -> dict[str, Tensor]:
        """`accepted` (clients,) int64."""
        self._offered = list(self.accepted)
        return {COLUMN: torch.tensor(self._offered)}

    def checkpointed(self) -> None:
        self.durable = list(self._offered)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        column, clients = tensors.get(COLUMN), len(self.accepted)
        if len(tensors) != 1 or column is None or column.dtype != torch.int64 or column.shape != (clients,):
            raise ValueError(f"the client states are {sorted(tensors)}; expected {COLUMN} of {clients} clients")
        rounds = [int(value) for value in column.tolist()]
        if min(rounds) < 0:
            raise ValueError(f"a client's accepted round is {min(rounds)}")
        self.accepted, self.durable, self._offered = rounds, list(rounds), list(rounds)
        self._staged, self._lost = set(), set()
