"""Data tests use their own cache; the `offline` fixture disables folders, mirrors and npm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dragfl.data import download
from dragfl.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DRAGFL_CACHE", str(cache))
    return cache


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folders, no mirror, no npm."""

    def refuse(url: str, *_: object) -> None:
        raise DataError("no connection")

    monkeypatch.delenv("DRAGFL_DATA", raising=False)
    monkeypatch.setattr("dragfl.data.sources.idx.download", refuse)
    monkeypatch.setattr("dragfl.data.sources.cifar10.download", refuse)
    monkeypatch.setattr(download.shutil, "which", lambda _: None)


@pytest.fixture
def idx_bytes() -> Callable[[np.ndarray], bytes]:
    """The idx file of a uint8 array."""

    def make(array: np.ndarray) -> bytes:
        sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
        return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()

    return make
