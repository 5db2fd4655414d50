"""The decoded cache: one folder a dataset with uint8 arrays that every process maps, and a manifest of checksums.

Arrays are mapped copy-on-write: pages are shared by all processes, and no write can reach the file. Each file
is replaced atomically and its content is fixed by the folder's key, so readers and writers need no lock.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Arrays = dict[str, "NDArray[np.generic]"]  # x, y, test_x, test_y
MANIFEST = "manifest.json"
log = logging.getLogger("dragfl.data")


def folder() -> Path:
    """DRAGFL_CACHE, or the cache folder this system gives each user."""
    chosen = os.environ.get("DRAGFL_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("dragfl"))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(entry: Path) -> Arrays | None:
    """The arrays of an entry, checked; None where it is absent or damaged (then the log says so)."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        out: Arrays = {}
        for name, known in manifest["files"].items():
            path = entry / f"{name}.npy"
            if path.stat().st_size != known["bytes"] or _digest(path) != known["sha256"]:
                raise ValueError(f"{path.name} does not have the checksum of the manifest")
            out[name] = np.load(path, mmap_mode="c", allow_pickle=False)
        return out
    except FileNotFoundError as error:
        if (entry / MANIFEST).exists():
            log.warning("cache %s: %s is missing; it is made again", entry, error.filename)
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("cache %s is damaged (%s); it is made again", entry, error)
        return None


def write(entry: Path, arrays: Mapping[str, NDArray[np.generic]], origin: str) -> None:
    """Store the arrays; the manifest comes last, so that an entry without one is no entry."""
    entry.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {}
    for name, array in arrays.items():
        with tempfile.NamedTemporaryFile(dir=entry, prefix=".", suffix=".part", delete=False) as file:
            try:
                np.save(file, np.ascontiguousarray(array), allow_pickle=False)
            except BaseException:
                Path(file.name).unlink()
                raise
        part = Path(file.name)
        files[name] = {"bytes": part.stat().st_size, "sha256": _digest(part)}
        part.chmod(0o644)
        part.replace(entry / f"{name}.npy")
    text = json.dumps({"version": 1, "origin": origin, "files": files}, indent=1)
    with tempfile.NamedTemporaryFile("w", dir=entry, prefix=".", suffix=".part", delete=False) as manifest:
        manifest.write(text)
    Path(manifest.name).chmod(0o644)
    Path(manifest.name).replace(entry / MANIFEST)
