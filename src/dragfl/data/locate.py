"""Where a dataset comes from: the decoded cache, else each way in turn, with an error that lists all of them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.data import cache
from dragfl.data.cache import Arrays
from dragfl.errors import DataError

if TYPE_CHECKING:
    from dragfl.data.download import Progress

VARIABLE = "DRAGFL_DATA"


@dataclass(frozen=True)
class Way:
    """One way to get the arrays; `get(folder, progress)` may use an empty folder that is deleted afterwards."""

    label: str
    get: Callable[[Path, Progress | None], Arrays]


def folders() -> list[Path]:
    """The user's own data folders: those in DRAGFL_DATA."""
    return [Path(part).expanduser() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


def pin(*parts: object) -> str:
    """A key for the cache: the same parts, the same decoded bytes."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def describe_location(name: str) -> str:
    """Where a dataset is on this machine, in words; nothing is read or checked."""
    if name == "digits":
        return "in the package"
    entry = next((cache.folder() / name).glob(f"*/{cache.MANIFEST}"), None)
    if entry is not None:
        return f"decoded in {entry.parent}"
    own = next((top / name for top in folders() if (top / name).is_dir()), None)
    return f"in {own}" if own else f"not here: dragfl data get {name}"


def obtain(name: str, key: str, ways: Sequence[Way], by_hand: str, progress: Progress | None = None) -> Arrays:
    """The arrays of a dataset from the cache entry (name, key), or from the first way that works, then cached."""
    entry = cache.folder() / name / key
    found = cache.read(entry)
    if found is not None:
        return found
    tried = [f"the cache {entry.parent}: no intact copy"]
    for way in ways:
        try:
            with tempfile.TemporaryDirectory(prefix="dragfl-") as spare:
                arrays = way.get(Path(spare), progress)
        except DataError as error:
            tried.append(f"{way.label}: {error}")
            continue
        try:
            cache.write(entry, arrays, origin=way.label)
        except OSError as error:
            cache.log.warning("cache %s cannot be written (%s); the data stay in memory", entry, error)
            return arrays
        return cache.read(entry) or arrays
    listed = "".join(f"\n  - {line}" for line in tried)
    raise DataError(f"dataset {name}: not found, and nothing brought it. Tried:{listed}\n{by_hand}")
