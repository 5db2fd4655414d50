"""Find the arrays of a dataset: in the cache, in the folders of DRAGFL_DATA, or at a download source."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from dragfl.data.cache import MANIFEST, Arrays, cache_folder, log, read_entry, write_entry
from dragfl.data.download import Progress
from dragfl.errors import DataError

VARIABLE = "DRAGFL_DATA"


@dataclass(frozen=True)
class Source:
    """A place to load the arrays from; `load(folder, progress)` may use the empty temporary folder."""

    label: str
    load: Callable[[Path, Progress | None], Arrays]


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


def cache_key(*parts: object) -> str:
    """The key of a cache entry: equal parts mean equal decoded bytes."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def describe_location(name: str) -> str:
    """Where a dataset is on this machine; nothing is read or verified."""
    if name == "digits":
        return "in the package"
    entry = next((cache_folder() / name).glob(f"*/{MANIFEST}"), None)
    if entry is not None:
        return f"decoded in {entry.parent}"
    folder = find_path([name], Path.is_dir)
    return f"in {folder}" if folder else f"not on this machine: dragfl data get {name}"


def load_arrays(
    name: str, key: str, sources: Iterable[Source], manual: str, progress: Progress | None = None
) -> Arrays:
    """Load the arrays from the cache entry (name, key), or from the first source that works; then cache them.

    `manual` describes how to get the files by hand; it ends the error message.
    """
    entry = cache_folder() / name / key
    cached = read_entry(entry)
    if cached is not None:
        return cached
    tried = [f"the cache {entry.parent}: no intact copy"]
    for source in sources:
        try:
            with tempfile.TemporaryDirectory(prefix="dragfl-") as temporary:
                arrays = source.load(Path(temporary), progress)
        except DataError as error:
            tried.append(f"{source.label}: {error}")
            continue
        try:
            write_entry(entry, arrays, origin=source.label)
        except OSError as error:
            log.warning("cache %s cannot be written (%s); the data stay in memory", entry, error)
            return arrays
        return read_entry(entry) or arrays
    listed = "".join(f"\n  - {line}" for line in tried)
    raise DataError(f"dataset {name}: not found locally, and every download source failed:{listed}\n{manual}")
