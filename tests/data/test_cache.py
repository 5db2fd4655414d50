"""The cache of decoded datasets: mapped, verified, rebuilt, safe with concurrent readers and writers."""

from __future__ import annotations

import json
import logging
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from dragfl.data.cache import Arrays, Source, cache_folder, load_arrays
from dragfl.data.dataset import as_tensors
from dragfl.errors import DataError

ARRAYS: Arrays = {
    "x": np.arange(60, dtype=np.uint8).reshape(5, 1, 3, 4),
    "y": np.array([0, 1, 2, 1, 0], np.uint8),
    "test_x": np.zeros((2, 1, 3, 4), np.uint8),
    "test_y": np.array([1, 2], np.uint8),
}


def source(calls: list[str]) -> dict[str, Source]:
    def get(folder: Path, _: object) -> Arrays:
        assert folder.is_dir() and not list(folder.iterdir())
        calls.append("called")
        return ARRAYS

    return {"test source": get}


def test_the_second_load_uses_the_cache(own_cache: Path) -> None:
    calls: list[str] = []
    for _ in range(2):
        found = load_arrays("toy", "k", source(calls), "")
        assert all((found[name] == ARRAYS[name]).all() for name in ARRAYS)
    assert calls == ["called"]
    manifest = json.loads((own_cache / "toy" / "k" / "manifest.json").read_text())
    assert manifest["origin"] == "test source" and set(manifest["files"]) == set(ARRAYS)
    assert [path.name for path in (own_cache / "toy").iterdir()] == ["k"]


@pytest.mark.parametrize("name", ["x.npy", "y.npy", "manifest.json"])
def test_a_flipped_byte_is_detected_and_the_entry_rebuilt(
    own_cache: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    load_arrays("toy", "k", source(calls), "")
    path = own_cache / "toy" / "k" / name
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x04
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING, "dragfl.data"):
        found = load_arrays("toy", "k", source(calls), "")
    assert calls == ["called", "called"] and "rebuilding" in caplog.text
    assert (found["x"] == ARRAYS["x"]).all() and (found["y"] == ARRAYS["y"]).all()
    load_arrays("toy", "k", source(calls), "")
    assert len(calls) == 2


@pytest.mark.parametrize("damage", ["truncate", "remove", "grow", "empty manifest", "other manifest"])
def test_other_damage_is_rebuilt(own_cache: Path, damage: str) -> None:
    calls: list[str] = []
    load_arrays("toy", "k", source(calls), "")
    entry = own_cache / "toy" / "k"
    if damage == "truncate":
        (entry / "x.npy").write_bytes((entry / "x.npy").read_bytes()[:-1])
    elif damage == "grow":
        (entry / "x.npy").write_bytes((entry / "x.npy").read_bytes() + b"a")
    elif damage == "remove":
        (entry / "x.npy").unlink()
    else:
        (entry / "manifest.json").write_text("" if damage == "empty manifest" else "[1]")
    assert (load_arrays("toy", "k", source(calls), "")["x"] == ARRAYS["x"]).all()
    assert len(calls) == 2


def test_arrays_are_mapped_and_writes_never_reach_the_file(own_cache: Path) -> None:
    found = load_arrays("toy", "k", source([]), "")
    assert isinstance(found["x"], np.memmap)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, y, _, _ = as_tensors(found)
    assert x.data_ptr() == found["x"].ctypes.data and y.dtype == torch.int64
    before = (own_cache / "toy" / "k" / "x.npy").read_bytes()
    x[0] = 99
    del x, found
    assert (own_cache / "toy" / "k" / "x.npy").read_bytes() == before


def test_concurrent_loads() -> None:
    def one(_: int) -> bool:
        found = load_arrays("toy", "k", source([]), "")
        return all(bool((found[name] == ARRAYS[name]).all()) for name in ARRAYS)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(40)))


def test_data_load_with_an_unwritable_cache(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_cache / "file").write_text("in the way")
    monkeypatch.setenv("DRAGFL_CACHE", str(own_cache / "file"))
    assert (load_arrays("toy", "k", source([]), "")["x"] == ARRAYS["x"]).all()


def test_sources_are_tried_in_order_and_all_are_named() -> None:
    def fail(word: str) -> dict[str, Source]:
        def get(_: Path, __: object) -> Arrays:
            raise DataError(f"{word} broke")

        return {word: get}

    calls: list[str] = []
    load_arrays("toy", "k", fail("first") | source(calls) | fail("never"), "")
    assert calls == ["called"]
    with pytest.raises(DataError) as caught:
        load_arrays("toy", "other", fail("first") | fail("second"), "Manual download: x.")
    lines = str(caught.value).splitlines()
    assert "the cache" in lines[1] and lines[2:] == [
        "  - first: first broke",
        "  - second: second broke",
        "Manual download: x.",
    ]
    assert caught.value.exit_code == 3


def test_the_default_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGFL_CACHE")
    assert cache_folder().name == "dragfl"
