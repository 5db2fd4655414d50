"""Datasets of four idx files: images and labels, for training and for testing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragfl.data.cache import Arrays
from dragfl.data.download import Progress, download
from dragfl.data.file_formats import parse_idx, read_file, verify_checksum
from dragfl.data.locate import VARIABLE, Source, find_path, not_in_folders
from dragfl.errors import DataError


@dataclass(frozen=True)
class IdxFile:
    """One idx file, plain or gzipped. `gz_checksum` verifies downloads, and local files without a `checksum`."""

    name: str  # without .gz
    shape: tuple[int, ...]
    checksum: str = ""  # of the plain file
    gz_checksum: str = ""

    @property
    def size(self) -> int:
        """Bytes of the plain file."""
        return 4 + 4 * len(self.shape) + prod(self.shape)

    def path_in(self, folder: Path) -> Path | None:
        """The path of the file in a folder, plain or gzipped; None if it is missing."""
        return next((p for p in (folder / self.name, folder / f"{self.name}.gz") if p.is_file()), None)

    def read(self, path: Path) -> NDArray[np.generic]:
        """Read and verify the array."""
        if self.gz_checksum and not self.checksum:
            verify_checksum(path, self.gz_checksum, str(path))
        return self.decode(read_file(path, self.size), str(path))

    def decode(self, data: bytes, name: str) -> NDArray[np.generic]:
        """Verify and parse the content of the plain file; images get a channel axis."""
        if self.checksum:
            verify_checksum(data, self.checksum, name)
        array = parse_idx(data, name)
        if array.shape != self.shape or array.dtype != np.uint8:
            raise DataError(f"{name}: holds {array.dtype} {array.shape}, expected uint8 {self.shape}")
        return array[:, None] if array.ndim == 3 else array


@dataclass(frozen=True)
class IdxFiles:
    """The four files, and the sub-folders of DRAGFL_DATA to search for them."""

    x: IdxFile
    y: IdxFile
    test_x: IdxFile
    test_y: IdxFile
    subfolders: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[str, IdxFile]]:
        return iter((name, getattr(self, name)) for name in ("x", "y", "test_x", "test_y"))

    def find_folder(self) -> Path | None:
        """The first folder of DRAGFL_DATA that holds all four files."""
        return find_path(self.subfolders, lambda folder: all(file.path_in(folder) for _, file in self))

    def read_folder(self, folder: Path) -> Arrays:
        """Read the four files of a folder."""
        out = {}
        for name, file in self:
            path = file.path_in(folder)
            if path is None:
                raise DataError(f"{folder} has no {file.name} or {file.name}.gz")
            out[name] = file.read(path)
        return out

    def local_source(self) -> Source:
        """The folders of DRAGFL_DATA."""

        def load(_: Path, __: Progress | None) -> Arrays:
            folder = self.find_folder()
            if folder is None:
                raise not_in_folders(f"folder {' or '.join(self.subfolders)} with the four files")
            return self.read_folder(folder)

        return Source(f"folders in {VARIABLE}", load)

    def mirror_source(self, base: str) -> Source:
        """The four .gz files below one address."""
        return Source(base, partial(self._download, base))

    def _download(self, base: str, folder: Path, progress: Progress | None) -> Arrays:
        for _, file in self:
            download(f"{base}/{file.name}.gz", file.gz_checksum, folder / f"{file.name}.gz", progress)
        return self.read_folder(folder)


def idx_files(
    train: int,
    test: int,
    subfolders: tuple[str, ...],
    *,
    prefix: str = "",
    test_name: str = "t10k",
    checksums: Sequence[str] = ("",) * 4,
    gz_checksums: Sequence[str] = ("",) * 4,
) -> IdxFiles:
    """Files of 28x28 images named as those of MNIST; checksums in the order x, y, test_x, test_y."""
    sums = zip(checksums, gz_checksums, strict=True)
    x, y, test_x, test_y = (
        IdxFile(f"{prefix}{part}-{kind}-ubyte", (count, *shape), *next(sums))
        for part, count in (("train", train), (test_name, test))
        for kind, shape in (("images-idx3", (28, 28)), ("labels-idx1", ()))
    )
    return IdxFiles(x, y, test_x, test_y, subfolders)
