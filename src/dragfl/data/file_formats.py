"""Readers of dataset files: idx, CIFAR-10 binary records, npz. Nothing is ever unpickled.

Every size in a header is checked against the size of the file before memory is allocated.
"""

from __future__ import annotations

import gzip
import hashlib
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from dragfl.errors import DataError

HEADER = 20  # bytes of the longest idx header read here
CHUNK = 1 << 20
IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
CIFAR_PIXELS = 3 * 32 * 32


def gunzip(stream: IO[bytes], name: str, limit: int) -> bytes:
    """Decompress at most `limit` bytes."""
    out = bytearray()
    try:
        with gzip.open(stream, "rb") as file:
            while chunk := file.read(CHUNK):
                out += chunk
                if len(out) > limit:
                    raise DataError(f"{name}: decompresses to more than the {limit} bytes expected; download it again")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: damaged gzip file ({error}); download it again") from None
    return bytes(out)


def read_file(path: Path, limit: int) -> bytes:
    """Read at most `limit` bytes of a file, decompressed if its name ends in .gz."""
    try:
        if path.suffix == ".gz":
            with path.open("rb") as file:
                return gunzip(file, str(path), limit)
        stored = path.stat().st_size
        if stored > limit:
            raise DataError(f"{path}: {stored} bytes, expected at most {limit}; download it again")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error}); check the path and its permissions") from None


def file_digest(path: Path, algorithm: str) -> str:
    """The hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def verify_checksum(data: bytes | Path, checksum: str, name: str) -> None:
    """Raise unless `data` has the checksum "algorithm:hexadecimal"."""
    algorithm, _, expected = checksum.partition(":")
    if isinstance(data, bytes):
        found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    else:
        found = file_digest(data, algorithm)
    if found != expected:
        raise DataError(
            f"{name}: checksum mismatch, {algorithm} is {found}, expected {expected}; the file is damaged or a "
            "different version"
        )


def _idx_header(data: bytes, name: str) -> tuple[np.dtype[np.generic], list[int], int]:
    """(item type, shape, offset of the items) of an idx file."""
    if len(data) < 4 or data[0] or data[1] or data[2] not in IDX_TYPES or not 1 <= data[3] <= 4:
        raise DataError(f"{name}: starts with {data[:4].hex() or 'nothing'}, not an idx file of 1 to 4 dimensions")
    first = 4 + 4 * data[3]
    if len(data) < first:
        raise DataError(f"{name}: ends inside its header, after {len(data)} bytes; download it again")
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, first, 4)]
    return np.dtype(IDX_TYPES[data[2]]), shape, first


def parse_idx(data: bytes, name: str) -> NDArray[np.generic]:
    """Parse an idx file: 0, 0, type, dimensions; each size as a big-endian uint32; the items."""
    kind, shape, first = _idx_header(data, name)
    expected = first + kind.itemsize * prod(shape)
    if len(data) != expected:
        raise DataError(f"{name}: its header requires {expected} bytes {shape}, it has {len(data)}; download it again")
    array = np.frombuffer(data, kind, offset=first).reshape(shape)
    return array.astype(kind.newbyteorder("="), copy=False)


def read_idx(path: Path) -> NDArray[np.generic]:
    """Read an idx or idx.gz file; no more is decompressed than its header requires."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            head = file.read(HEADER)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); check the path, or download it again") from None
    kind, shape, first = _idx_header(head, str(path))
    return parse_idx(read_file(path, first + kind.itemsize * prod(shape)), str(path))


def parse_cifar(data: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """(n, 3, 32, 32) images and (n,) labels of CIFAR-10 records: a label byte, then 3072 planar RGB bytes."""
    if not data or len(data) % (1 + CIFAR_PIXELS):
        raise DataError(
            f"{name}: {len(data)} bytes are not a whole number of {1 + CIFAR_PIXELS}-byte records; download it again"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + CIFAR_PIXELS)
    labels = records[:, 0].copy()
    if labels.max() > 9:
        raise DataError(f"{name}: a label of {int(labels.max())}, CIFAR-10 has 0 to 9; download it again")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels


def read_npz(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read every array of an npz file; arrays of Python objects are refused."""
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: holds one array without a name; save it with numpy.savez(path, x=..., y=...)")
        with stored:
            return {name: stored[name] for name in stored.files}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).split(". ")[0]  # what numpy advises next is to load it unsafely
        raise DataError(
            f"{path}: cannot be read as npz ({reason}); save numbers with numpy.savez(path, x=..., y=...)"
        ) from None
