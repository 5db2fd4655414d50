"""Datasets of four idx files: images and labels, for training and for testing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from dragfl.data.download import Progress, download
from dragfl.data.file_formats import contents, idx, verify
from dragfl.data.locate import VARIABLE, Way, folders
from dragfl.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from dragfl.data.cache import Arrays


@dataclass(frozen=True)
class File:
    """One of the four. `digest` is of the idx file; `packed` of its .gz, for downloads and where it is all we know."""

    name: str  # without .gz
    shape: tuple[int, ...]
    digest: str = ""
    packed: str = ""

    @property
    def size(self) -> int:
        """Bytes of the idx file."""
        return 4 + 4 * len(self.shape) + prod(self.shape)

    def stored(self, folder: Path) -> Path | None:
        """Where the file lies in a folder, plain or gzipped."""
        return next((p for p in (folder / self.name, folder / f"{self.name}.gz") if p.is_file()), None)

    def read(self, path: Path) -> NDArray[np.generic]:
        """The array, after every check that is known for it."""
        if self.packed and not self.digest:
            verify(path, self.packed, str(path))
        return self.decode(contents(path, self.size), str(path))

    def decode(self, data: bytes, where: str) -> NDArray[np.generic]:
        """The array in the content of the idx file; images get their channel."""
        if self.digest:
            verify(data, self.digest, where)
        array = idx(data, where)
        if array.shape != self.shape or array.dtype != np.uint8:
            raise DataError(f"{where}: holds {array.dtype} {array.shape}, expected uint8 {self.shape}")
        return array[:, None] if array.ndim == 3 else array


@dataclass(frozen=True)
class Files:
    """The four files, and the sub-folders of a data folder in which they are looked for."""

    x: File
    y: File
    test_x: File
    test_y: File
    places: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[str, File]]:
        return iter((name, getattr(self, name)) for name in ("x", "y", "test_x", "test_y"))

    def find(self) -> Path | None:
        """The first folder of DRAGFL_DATA that holds all four."""
        places = (top / sub for top in folders() for sub in self.places)
        return next((place for place in places if all(file.stored(place) for _, file in self)), None)

    def from_folder(self, folder: Path) -> Arrays:
        out = {}
        for name, file in self:
            path = file.stored(folder)
            if path is None:
                raise DataError(f"{folder} has no {file.name} or {file.name}.gz")
            out[name] = file.read(path)
        return out

    def local(self) -> Way:
        """The user's own folders."""

        def get(_: Path, __: Progress | None) -> Arrays:
            folder = self.find()
            if folder is None:
                among = ", ".join(map(str, folders())) or "it is not set"
                raise DataError(f"no folder {' or '.join(self.places)} with the four files ({among})")
            return self.from_folder(folder)

        return Way(f"folders in {VARIABLE}", get)

    def mirror(self, base: str) -> Way:
        """The four .gz files below one address."""
        return Way(base, partial(self._download, base))

    def _download(self, base: str, spare: Path, progress: Progress | None) -> Arrays:
        for _, file in self:
            download(f"{base}/{file.name}.gz", file.packed, spare / f"{file.name}.gz", progress)
        return self.from_folder(spare)


def tensors(arrays: Arrays) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x, y, test_x, test_y): inputs share the memory of the arrays, labels become int64."""
    x, y, test_x, test_y = (torch.from_numpy(arrays[name]) for name in ("x", "y", "test_x", "test_y"))
    return x, y.long(), test_x, test_y.long()
