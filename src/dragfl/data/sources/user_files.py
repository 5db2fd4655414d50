"""Files of the user: `npz:PATH` with the arrays x, y, test_x, test_y, or `idx:FOLDER` with four idx files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragfl.data.dataset import Dataset, from_tensors
from dragfl.data.file_formats import read_idx, read_npz
from dragfl.errors import DataError

ALIASES = {  # array -> accepted names
    "x": ("x", "x_train", "train_x", "images", "data"),
    "y": ("y", "y_train", "train_y", "labels", "target"),
    "test_x": ("test_x", "x_test"),
    "test_y": ("test_y", "y_test"),
    "groups": ("groups",),
    "classes": ("classes",),
}
HOLD_OUT = 5  # without a test part, every fifth sample becomes test data


def load_npz(where: str) -> Dataset:
    """Load uint8 images (n, h, w) or (n, channels, h, w), or float features; labels start at 0."""
    path = Path(where).expanduser()
    stored = read_npz(path)
    found = {name: stored[alias] for name, names in ALIASES.items() for alias in names if alias in stored}
    if "x" not in found or "y" not in found or ("test_x" in found) != ("test_y" in found):
        raise DataError(
            f"{path}: has the arrays {', '.join(stored) or 'none'}; give x and y, and test_x and test_y or neither"
        )
    if len(found["x"]) != len(found["y"]):
        raise DataError(f"{path}: {len(found['x'])} inputs and {len(found['y'])} labels; give one label for each")
    if "test_x" not in found:
        test = np.arange(len(found["y"])) % HOLD_OUT == HOLD_OUT - 1
        held_out = {"test_x": found["x"][test], "test_y": found["y"][test]}
        found = {name: value if name == "classes" else value[~test] for name, value in found.items()} | held_out
    settings: dict[str, Any] = {"groups": found.get("groups")}
    if "classes" in found:
        settings["classes"] = int(found["classes"].item())
    parts = (_torch_compatible(f"{path}: {name}", found[name]) for name in ("x", "y", "test_x", "test_y"))
    try:
        return from_tensors(*parts, name=path.stem, **settings)
    except DataError as error:
        raise DataError(str(error).replace(f"dataset {path.stem}", str(path), 1)) from None


def _torch_compatible(name: str, array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Convert types that torch does not accept: other byte orders, unsigned integers wider than a byte."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} is an array of {array.dtype}; give numbers")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        return array.astype(np.int64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def load_idx(where: str) -> Dataset:
    """Load four files by name: *train*images*, *train*labels*, and *test* or *t10k* for both; plain or .gz."""
    folder = Path(where).expanduser()
    if not folder.is_dir():
        raise DataError(f"idx:{where}: no such folder; give the folder that holds the four idx files")
    files = [_find_file(folder, part, kind) for part in ("train", "test") for kind in ("images", "labels")]
    transposed = files[0].name.startswith("emnist")
    x, y, test_x, test_y = (_torch_compatible(str(path), read_idx(path)).copy() for path in files)
    return from_tensors(x, y, test_x, test_y, name=folder.resolve().name, transposed=transposed)


def _find_file(folder: Path, part: str, kind: str) -> Path:
    """The one idx file of this part and kind; a plain file is preferred to its .gz."""
    words = ("train",) if part == "train" else ("test", "t10k")
    found = [
        p for p in sorted(folder.iterdir()) if kind in p.name and "idx" in p.name and any(w in p.name for w in words)
    ]
    plain = [p for p in found if p.suffix != ".gz"] or found
    if len(plain) != 1:
        names = ", ".join(p.name for p in plain) or "none"
        raise DataError(f"{folder}: needs one file *{'|'.join(words)}*{kind}*idx*, found {names}")
    return plain[0]
