"""A user's own files: `npz:PATH` with the arrays x, y, test_x, test_y, or `idx:FOLDER` with four idx files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragfl.data.dataset import Dataset, from_tensors
from dragfl.data.file_formats import read_idx, read_npz
from dragfl.errors import DataError

ALIASES = {  # the name used here, and others that are understood
    "x": ("x", "x_train", "train_x", "images", "data"),
    "y": ("y", "y_train", "train_y", "labels", "target"),
    "test_x": ("test_x", "x_test"),
    "test_y": ("test_y", "y_test"),
    "groups": ("groups",),
    "classes": ("classes",),
}
HELD_OUT = 5  # without a test part, every fifth sample is held out


def load_npz(where: str) -> Dataset:
    """Arrays by name; uint8 images (n, h, w) or (n, channels, h, w), or float features; labels from 0."""
    path = Path(where).expanduser()
    stored = read_npz(path)
    found = {name: stored[known] for name, names in ALIASES.items() for known in names if known in stored}
    if "x" not in found or "y" not in found or ("test_x" in found) != ("test_y" in found):
        raise DataError(
            f"{path}: has the arrays {', '.join(stored) or 'none'}; give x and y, and test_x and test_y or neither"
        )
    if len(found["x"]) != len(found["y"]):
        raise DataError(f"{path}: {len(found['x'])} inputs and {len(found['y'])} labels; give one label for each")
    if "test_x" not in found:
        found = _hold_out(found)
    settings: dict[str, Any] = {"groups": found.get("groups")}
    if "classes" in found:
        settings["classes"] = int(found["classes"].item())
    parts = (_native(found[name]) for name in ("x", "y", "test_x", "test_y"))
    return from_tensors(*parts, name=path.stem, **settings)


def _hold_out(found: dict[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    test = np.arange(len(found["y"])) % HELD_OUT == HELD_OUT - 1
    kept = {name: value if name == "classes" else value[~test] for name, value in found.items()}
    return kept | {"test_x": found["x"][test], "test_y": found["y"][test]}


def _native(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Types torch can take: another byte order or unsigned integers wider than a byte are converted."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"an array of {array.dtype}; give numbers")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        return array.astype(np.int64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def load_idx(where: str) -> Dataset:
    """Four files by name: *train*images*, *train*labels*, and *test* or *t10k* for both; plain or .gz."""
    folder = Path(where).expanduser()
    if not folder.is_dir():
        raise DataError(f"idx:{where}: no such folder; give the folder that holds the four idx files")
    files = [
        _one(folder, "train", "images"),
        _one(folder, "train", "labels"),
        _one(folder, "test", "images"),
        _one(folder, "test", "labels"),
    ]
    transposed = files[0].name.startswith("emnist")
    x, y, test_x, test_y = (_native(read_idx(path)).copy() for path in files)
    return from_tensors(x, y, test_x, test_y, name=folder.resolve().name, transposed=transposed)


def _one(folder: Path, part: str, what: str) -> Path:
    words = ("train",) if part == "train" else ("test", "t10k")
    found = [
        p for p in sorted(folder.iterdir()) if what in p.name and "idx" in p.name and any(w in p.name for w in words)
    ]
    plain = [p for p in found if p.suffix != ".gz"] or found  # a file beside its own .gz is one file
    if len(plain) != 1:
        names = ", ".join(p.name for p in plain) or "none"
        raise DataError(f"{folder}: needs one file *{'|'.join(words)}*{what}*idx*, found {names}")
    return plain[0]
