"""Client states in memory. The checkpoint holds them all, and its digest covers them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dragfl.engine.client_store.layout import Layout, check_clients


class MemoryStore:
    """States in memory, by client."""

    lost_states = 0

    def __init__(self, layout: Layout, clients: int) -> None:
        self._layout, self._clients = layout, clients
        self._rows: dict[int, Mapping[str, Tensor]] = {}
        self._staged: dict[int, Mapping[str, Tensor]] = {}

    def begin(self, round: int) -> None:
        self._staged = {}

    def read(self, client: int) -> Mapping[str, Tensor]:
        return self._rows[client] if client in self._rows else self._layout.zeros()

    def stage(self, client: int, state: Mapping[str, Tensor]) -> None:
        self._layout.check(state)
        if state:  # copied: it may be a view that keeps a whole block of updates alive
            self._staged[client] = {name: value.detach().clone() for name, value in state.items()}

    def commit(self) -> None:
        self._rows |= self._staged
        self._staged = {}

    def tensors(self) -> dict[str, Tensor]:
        """`client` (n,) and one (n, ...) tensor for each field."""
        if not self._rows:
            return {}
        clients = sorted(self._rows)
        columns = {name: torch.stack([self._rows[m][name] for m in clients]) for name in self._layout.shapes}
        return {"client": torch.tensor(clients), **columns}

    def checkpointed(self) -> None:
        pass

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        rows: dict[int, Mapping[str, Tensor]] = {}
        if tensors:
            clients = [int(m) for m in tensors["client"].tolist()]
            check_clients(clients, self._clients)
            columns = {name: value.to(self._layout.device) for name, value in tensors.items() if name != "client"}
            for i, m in enumerate(clients):
                rows[m] = {name: value[i].clone() for name, value in columns.items()}
                self._layout.check(rows[m])
        self._rows, self._staged = rows, {}
