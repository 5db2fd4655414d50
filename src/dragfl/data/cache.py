"""Find the arrays of a dataset: in the cache, in the folders of DRAGFL_DATA, or at a download source.

The cache has one folder per dataset version, with uint8 arrays and a manifest of checksums. Arrays are mapped
copy-on-write: all processes share the pages, and no write can reach the file.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragfl.data.download import Progress
from dragfl.data.file_formats import file_digest
from dragfl.data.sources import TABULAR
from dragfl.errors import DataError

Arrays = dict[str, "NDArray[np.generic]"]  # x, y, test_x, test_y
Source = Callable[[Path, Progress | None], Arrays]  # loads the arrays; may use the empty temporary folder
VARIABLE = "DRAGFL_DATA"
MANIFEST = "manifest.json"
log = logging.getLogger("dragfl.data")


def cache_folder() -> Path:
    """DRAGFL_CACHE, or the cache folder of the user on this system."""
    configured = os.environ.get("DRAGFL_CACHE")
    if configured:
        return Path(configured).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("dragfl"))


def data_folders() -> list[Path]:
    """The folders in DRAGFL_DATA."""
    return [Path(part).expanduser() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


def find_path(candidates: Iterable[str], accept: Callable[[Path], bool]) -> Path | None:
    """The first accepted path among the candidates below each folder of DRAGFL_DATA."""
    paths = (folder / candidate for folder in data_folders() for candidate in candidates)
    return next((path for path in paths if accept(path)), None)


def not_in_folders(wanted: str) -> DataError:
    """The error for data that no folder of DRAGFL_DATA holds."""
    searched = ", ".join(map(str, data_folders())) or f"{VARIABLE} is not set"
    return DataError(f"no {wanted} ({searched})")


def find_local(name: str) -> str | None:
    """Where a dataset is on this machine, None if it is not; nothing is read or verified."""
    if name in ("digits", "play"):
        return "in the package"
    if name in TABULAR:
        return "in scikit-learn" if find_spec("sklearn") else None
    entry = next((cache_folder() / name).glob(f"*/{MANIFEST}"), None)
    if entry is not None:
        return f"decoded in {entry.parent}"
    folder = find_path([name], Path.is_dir)
    return f"in {folder}" if folder else None


def load_arrays(
    name: str, key: str, sources: Mapping[str, Source], manual: str, progress: Progress | None = None
) -> Arrays:
    """Load the arrays from the cache entry (name, key), or from the first source that works; then cache them.

    `manual` describes how to get the files by hand; it ends the error message.
    """
    entry = cache_folder() / name / key
    cached = read_entry(entry)
    if cached is not None:
        return cached
    tried = [f"the cache {entry.parent}: no intact copy"]
    for label, load in sources.items():
        try:
            with tempfile.TemporaryDirectory(prefix="dragfl-") as temporary:
                arrays = load(Path(temporary), progress)
        except DataError as error:
            tried.append(f"{label}: {error}")
            continue
        try:
            write_entry(entry, arrays, origin=label)
        except OSError as error:
            log.warning("cache %s cannot be written (%s); the data stay in memory", entry, error)
            return arrays
        return read_entry(entry) or arrays
    listed = "".join(f"\n  - {line}" for line in tried)
    raise DataError(f"dataset {name}: not found locally, and every download source failed:{listed}\n{manual}")


def read_entry(entry: Path) -> Arrays | None:
    """Read and verify the arrays of an entry; None if it is absent, or damaged (logged as a warning)."""
    if not (entry / MANIFEST).exists():
        return None
    try:
        out: Arrays = {}
        for name, expected in json.loads((entry / MANIFEST).read_text())["files"].items():
            path = entry / f"{name}.npy"
            if file_digest(path, "sha256") != expected["sha256"]:
                raise ValueError(f"{path.name}: checksum mismatch")
            out[name] = np.load(path, mmap_mode="c", allow_pickle=False)
        return out
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("cache %s is damaged (%s); rebuilding the entry", entry, error)
        return None


def write_entry(entry: Path, arrays: Mapping[str, NDArray[np.generic]], origin: str) -> None:
    """Write the arrays to a temporary folder that then becomes the entry; readers never see an incomplete one."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix=".") as temporary:
        folder = Path(temporary) / entry.name
        folder.mkdir()
        files = {}
        for name, array in arrays.items():
            path = folder / f"{name}.npy"
            np.save(path, np.ascontiguousarray(array), allow_pickle=False)
            files[name] = {"bytes": path.stat().st_size, "sha256": file_digest(path, "sha256")}
        (folder / MANIFEST).write_text(json.dumps({"version": 1, "origin": origin, "files": files}, indent=1))
        shutil.rmtree(entry, ignore_errors=True)
        folder.rename(entry)
