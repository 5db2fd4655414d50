"""What clients keep between rounds: one row a client and field, zero until the client is first seen.

A round stages its rows and commits them as a whole at its end, so that a round that fails leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

Fields = Mapping[str, Literal["vector", "scalar"]]


class MemoryStore:
    """Rows in memory, by client."""

    def __init__(self, fields: Fields, dim: int, device: str = "cpu") -> None:
        self._shapes = {name: (dim,) if kind == "vector" else () for name, kind in fields.items()}
        self._device = device
        self._rows: dict[int, dict[str, Tensor]] = {}
        self._staged: dict[int, dict[str, Tensor]] = {}

    def read(self, client: int) -> Mapping[str, Tensor]:
        """The committed state of one client."""
        if client in self._rows:
            return self._rows[client]
        return {name: torch.zeros(shape, device=self._device) for name, shape in self._shapes.items()}

    def stage(self, client: int, state: Mapping[str, Tensor]) -> None:
        if state.keys() != self._shapes.keys():
            raise ValueError(
                f"client state has fields {sorted(state)}, but the correction declares {sorted(self._shapes)}"
            )
        if state:
            self._staged[client] = {name: value.detach() for name, value in state.items()}

    def commit(self) -> None:
        self._rows |= self._staged
        self._staged = {}

    def tensors(self) -> dict[str, Tensor]:
        """Everything committed, for a checkpoint: `client` (n,) and one (n, ...) tensor a field."""
        if not self._rows:
            return {}
        clients = sorted(self._rows)
        columns = {name: torch.stack([self._rows[m][name] for m in clients]) for name in self._shapes}
        return {"client": torch.tensor(clients), **columns}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        clients = tensors["client"].tolist() if tensors else []
        self._rows = {
            m: {name: tensors[name][i].to(self._device).clone() for name in self._shapes} for i, m in enumerate(clients)
        }
        self._staged = {}
