"""A file of equal slots, each with one client's state and enough beside it to know that state from anything else.

    slot = magic | CRC-32 of all that follows | client | round | zeros up to byte 64 | fields

Fields start at multiples of 64 bytes, as torch's own tensors do, so that no kernel meets a state from the file with
another alignment than one from memory. Slots start at multiples of a disk page: writing one never touches a page of
its neighbour, which a checkpoint may count on.
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
COVERED = 16  # the checksum is over everything from here
ALIGN, PAGE = 64, 4096
STEP_BYTES = 64 << 20  # the file grows by at most this much ahead of need


class Unreadable(Exception):
    """A slot does not hold what was asked for; the message says what is there instead."""


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class SlotFile:
    """Opened when first used: the run directory may not be there before, and may still belong to another process."""

    def __init__(self, layout: Layout, path: Path | None) -> None:
        self.path, self._layout = path, layout
        self._starts: dict[str, tuple[int, int]] = {}
        end = ALIGN
        for name, shape in layout.shapes.items():
            self._starts[name] = (end, end + 4 * torch.Size(shape).numel())
            end = _up(self._starts[name][1], ALIGN)
        self._used, self.stride = end, _up(end, PAGE)
        self._out = torch.zeros(end, dtype=torch.uint8)
        self._file: int | None = None

    def count(self) -> int:
        """Whole slots in the file; none if there is no file."""
        if self._file is None and (self.path is None or not self.path.exists()):
            return 0
        return os.fstat(self._open()).st_size // self.stride

    def grow(self, most: int) -> range:
        """New slots behind the last one: a few at a time, so that the file is in few pieces and little is idle."""
        first = self.count()
        number = min(max(4, first // 4), max(1, STEP_BYTES // self.stride), max(1, most))
        begin, length = first * self.stride, number * self.stride
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._open(), begin, length)
            else:
                os.ftruncate(self._open(), begin + length)
        except OSError as error:
            raise self._told(error) from error
        return range(first, first + number)

    def write(self, slot: int, client: int, round: int, state: Mapping[str, Tensor]) -> None:
        for name, (begin, end) in self._starts.items():
            value = state[name].detach().reshape(-1)
            self._out[begin:end].view(torch.float32).copy_(value)
        view = self._out.numpy().data
        HEADER.pack_into(view, 0, MAGIC, 0, client, round)
        HEADER.pack_into(view, 0, MAGIC, zlib.crc32(view[COVERED:]), client, round)
        done = 0
        try:
            while done < self._used:
                done += os.pwrite(self._open(), view[done:], slot * self.stride + done)
        except OSError as error:
            raise self._told(error) from error

    def read(self, slot: int, client: int, round: int) -> dict[str, Tensor]:
        """The state that this client left in this round, or Unreadable."""
        row = torch.empty(self._used, dtype=torch.uint8)
        view = row.numpy().data
        done = 0
        while done < self._used:
            try:
                got = os.preadv(self._open(), [view[done:]], slot * self.stride + done)
            except OSError as error:
                raise Unreadable(error.strerror or str(error)) from error
            if not got:
                raise Unreadable("the file ends before it")
            done += got
        magic, checksum, found_client, found_round = HEADER.unpack_from(view)
        if magic != MAGIC:
            raise Unreadable("there is none in its slot")
        if checksum != zlib.crc32(view[COVERED:]):
            raise Unreadable("its checksum is another")
        if (found_client, found_round) != (client, round):
            raise Unreadable(f"its slot holds client {found_client} of round {found_round}")
        device = self._layout.device
        return {
            name: row[begin:end].view(torch.float32).reshape(self._layout.shapes[name]).to(device)
            for name, (begin, end) in self._starts.items()
        }

    def sync(self) -> None:
        """Everything written so far is on the disk. (The checkpoint that follows syncs the folder.)"""
        try:
            os.fsync(self._open())
        except OSError as error:
            raise self._told(error) from error

    def _open(self) -> int:
        if self._file is None:
            try:
                self._file = _nameless() if self.path is None else os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise self._told(error) from error
            weakref.finalize(self, os.close, self._file)
        return self._file

    def _told(self, error: OSError) -> Exception:
        return error if self.path is None else storage_error(self.path, error)


def _nameless() -> int:
    """A file that no one else sees and that is gone with the process: on a disk, where /tmp may be memory."""
    folder = os.environ.get("TMPDIR") or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else None)
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())
