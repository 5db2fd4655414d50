"""The cache of decoded datasets: one folder per dataset with uint8 arrays and a manifest of checksums.

Arrays are mapped copy-on-write: all processes share the pages, and no write can reach the file. Files are replaced
atomically and the folder's key fixes their content, so readers and writers need no lock.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dragfl.data.file_formats import file_digest

Arrays = dict[str, "NDArray[np.generic]"]  # x, y, test_x, test_y
MANIFEST = "manifest.json"
log = logging.getLogger("dragfl.data")


def cache_folder() -> Path:
    """DRAGFL_CACHE, or the cache folder of the user on this system."""
    configured = os.environ.get("DRAGFL_CACHE")
    if configured:
        return Path(configured).expanduser()
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("dragfl"))


def read_entry(entry: Path) -> Arrays | None:
    """Read and verify the arrays of an entry; None if it is absent, or damaged (logged as a warning)."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        out: Arrays = {}
        for name, expected in manifest["files"].items():
            path = entry / f"{name}.npy"
            if path.stat().st_size != expected["bytes"] or file_digest(path, "sha256") != expected["sha256"]:
                raise ValueError(f"{path.name}: checksum mismatch")
            out[name] = np.load(path, mmap_mode="c", allow_pickle=False)
        return out
    except FileNotFoundError as error:
        if (entry / MANIFEST).exists():
            log.warning("cache %s: %s is missing; rebuilding the entry", entry, error.filename)
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("cache %s is damaged (%s); rebuilding the entry", entry, error)
        return None


def write_entry(entry: Path, arrays: Mapping[str, NDArray[np.generic]], origin: str) -> None:
    """Store the arrays; the manifest is written last, so that an interrupted write leaves no valid entry."""
    entry.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {}
    for name, array in arrays.items():
        part = _write_part(entry, partial(np.save, arr=np.ascontiguousarray(array), allow_pickle=False))
        files[name] = {"bytes": part.stat().st_size, "sha256": file_digest(part, "sha256")}
        part.replace(entry / f"{name}.npy")
    text = json.dumps({"version": 1, "origin": origin, "files": files}, indent=1)
    _write_part(entry, lambda file: file.write(text.encode())).replace(entry / MANIFEST)


def _write_part(entry: Path, save: Callable[[IO[bytes]], object]) -> Path:
    """Write a temporary file in the entry's folder; it is removed if writing fails."""
    with tempfile.NamedTemporaryFile(dir=entry, prefix=".", suffix=".part", delete=False) as file:
        try:
            save(file)
        except BaseException:
            Path(file.name).unlink()
            raise
    Path(file.name).chmod(0o644)
    return Path(file.name)
