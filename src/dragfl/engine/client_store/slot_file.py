"""A file of slots of equal size. A slot holds the state of one client, with its id, its round and a checksum.

    slot = magic | CRC-32 of all that follows | client | round | zeros up to byte 64 | fields

Fields start at multiples of 64 bytes, as torch's own tensors do, so that states from the file and from memory have the
same alignment. Slots start at multiples of a disk page: a write never touches a page of another slot, which a
checkpoint may refer to.
"""

from __future__ import annotations

import os
import struct
import tempfile
import weakref
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from dragfl.atomic import storage_error
from dragfl.engine.client_store.layout import Layout

MAGIC = b"dragfl-1"
HEADER = struct.Struct("<8sQqq")  # magic, checksum, client, round
CHECKED_FROM = 16  # first byte that the checksum covers
ALIGN, PAGE = 64, 4096
GROWTH_BYTES = 64 << 20  # the file grows by at most this much at a time


class UnreadableSlot(Exception):
    """A slot does not hold the requested state; the message is the reason."""


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class SlotFile:
    """Opened at first use: before that the run directory may not exist, or another process may hold it.

    Without a path it is an anonymous temporary file.
    """

    def __init__(self, layout: Layout, path: Path | None) -> None:
        self.path, self._layout = path, layout
        self._starts: dict[str, tuple[int, int]] = {}
        end = ALIGN
        for name, shape in layout.shapes.items():
            self._starts[name] = (end, end + 4 * torch.Size(shape).numel())
            end = _round_up(self._starts[name][1], ALIGN)
        self._used, self.stride = end, _round_up(end, PAGE)
        self._buffer = torch.zeros(end, dtype=torch.uint8)
        self._file: int | None = None

    def count(self) -> int:
        """Number of whole slots in the file; 0 if there is no file."""
        if self._file is None and (self.path is None or not self.path.exists()):
            return 0
        return os.fstat(self._open()).st_size // self.stride

    def grow(self, most: int) -> range:
        """Append at most `most` slots and return them: a quarter more, for few extents and little unused space."""
        first = self.count()
        number = min(max(4, first // 4), max(1, GROWTH_BYTES // self.stride), max(1, most))
        begin, length = first * self.stride, number * self.stride
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._open(), begin, length)
            else:
                os.ftruncate(self._open(), begin + length)
        except OSError as error:
            raise self._storage_error(error) from error
        return range(first, first + number)

    def write(self, slot: int, client: int, round: int, state: Mapping[str, Tensor]) -> None:
        for name, (begin, end) in self._starts.items():
            value = state[name].detach().reshape(-1)
            self._buffer[begin:end].view(torch.float32).copy_(value)
        view = self._buffer.numpy().data
        HEADER.pack_into(view, 0, MAGIC, 0, client, round)
        HEADER.pack_into(view, 0, MAGIC, zlib.crc32(view[CHECKED_FROM:]), client, round)
        written = 0
        try:
            while written < self._used:
                written += os.pwrite(self._open(), view[written:], slot * self.stride + written)
        except OSError as error:
            raise self._storage_error(error) from error

    def read(self, slot: int, client: int, round: int) -> dict[str, Tensor]:
        """Read the state that this client stored in this round; UnreadableSlot if the slot holds anything else."""
        row = torch.empty(self._used, dtype=torch.uint8)
        view = row.numpy().data
        done = 0
        while done < self._used:
            try:
                got = os.preadv(self._open(), [view[done:]], slot * self.stride + done)
            except OSError as error:
                raise UnreadableSlot(error.strerror or str(error)) from error
            if not got:
                raise UnreadableSlot("the file ends before its slot")
            done += got
        magic, checksum, found_client, found_round = HEADER.unpack_from(view)
        if magic != MAGIC:
            raise UnreadableSlot("no state in its slot")
        if checksum != zlib.crc32(view[CHECKED_FROM:]):
            raise UnreadableSlot("checksum mismatch")
        if (found_client, found_round) != (client, round):
            raise UnreadableSlot(f"its slot holds client {found_client} of round {found_round}")
        device = self._layout.device
        return {
            name: row[begin:end].view(torch.float32).reshape(self._layout.shapes[name]).to(device)
            for name, (begin, end) in self._starts.items()
        }

    def sync(self) -> None:
        """Write everything to disk. The checkpoint that follows syncs the folder."""
        try:
            os.fsync(self._open())
        except OSError as error:
            raise self._storage_error(error) from error

    def _open(self) -> int:
        if self._file is None:
            try:
                self._file = (
                    _open_anonymous() if self.path is None else os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
                )
            except OSError as error:
                raise self._storage_error(error) from error
            weakref.finalize(self, os.close, self._file)
        return self._file

    def _storage_error(self, error: OSError) -> Exception:
        return error if self.path is None else storage_error(self.path, error)


def _open_anonymous() -> int:
    """Open a temporary file without a name, deleted with the process; in /var/tmp, since /tmp may be in memory."""
    folder = os.environ.get("TMPDIR") or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else None)
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())
