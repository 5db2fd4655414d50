"""Small client states for the tests of the stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from dragfl.engine.client_store import ClientStore, FileStore, Layout, SlotFile

LAYOUT = Layout.of({"h": "vector", "seen": "scalar"}, 5)
CLIENTS = 4


def file_store(path: Path | None, on_missing: Literal["error", "zero"] = "error") -> FileStore:
    return FileStore(LAYOUT, CLIENTS, SlotFile(LAYOUT, path), on_missing)


def state(value: float) -> dict[str, Tensor]:
    return {"h": torch.arange(5.0) + value, "seen": torch.tensor(float(value))}


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def run_round(store: ClientStore, round: int, **values: float) -> None:
    """One round after which the clients m0, m1, ... have the states of these values."""
    store.begin(round)
    for name, value in values.items():
        store.stage(int(name[1:]), state(value))
    store.commit()
