"""Memory that a pool and its workers share: one unnamed file that all of them map, and the places of tensors in it.

The file is a `memfd`, or an unlinked temporary file where the system has none; never one in /dev/shm, which is limited
to 64 MB in many containers. It only grows; a process maps it again when a call needs more of it.
"""

from __future__ import annotations

import copy
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dragfl.types import RoundContext

ALIGN = 64  # as torch aligns its own memory: some kernels round differently on unaligned memory


class TensorSpec(NamedTuple):
    """Type and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @staticmethod
    def of(value: Tensor) -> TensorSpec:
        return TensorSpec(value.dtype, tuple(value.shape))


class TensorPlace(NamedTuple):
    """A tensor in shared memory."""

    offset: int
    spec: TensorSpec


@dataclass
class MemoryLayout:
    """Assigns places one after the other."""

    size: int = 0

    def place(self, spec: TensorSpec, rows: tuple[int, ...] = ()) -> TensorPlace:
        """The place of a tensor; with `rows` it has these leading dimensions."""
        spec = TensorSpec(spec.dtype, (*rows, *spec.shape))
        place = TensorPlace(self.size, spec)
        used = math.prod(spec.shape) * spec.dtype.itemsize
        self.size += -(-used // ALIGN) * ALIGN
        return place


class SharedMemory:
    """The mapped file. A tensor of it stays valid as long as it is referenced, whatever happens to this object."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None
        weakref.finalize(self, os.close, descriptor)

    @staticmethod
    def create() -> SharedMemory:
        if hasattr(os, "memfd_create"):
            return SharedMemory(os.memfd_create("dragfl"))
        with tempfile.TemporaryFile() as file:
            return SharedMemory(os.dup(file.fileno()))

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def grow(self, size: int) -> None:
        """Make the file at least this large, and map it."""
        if self.size < size:
            os.ftruncate(self.descriptor, size)
        self.map(size)

    def map(self, size: int) -> None:
        """Map at least this much of the file."""
        if size > (0 if self._map is None else len(self._map)):
            self._map = mmap.mmap(self.descriptor, size)

    def tensor(self, place: TensorPlace) -> Tensor:
        (dtype, shape), count = place.spec, math.prod(place.spec.shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        assert self._map is not None
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=place.offset).view(shape)

    def tensors(self, places: Mapping[str, TensorPlace]) -> dict[str, Tensor]:
        return {name: self.tensor(place) for name, place in places.items()}


def copy_into(target: Tensor | None, value: Tensor) -> bool:
    """Copy a tensor to its place; False if there is no place of its type and shape."""
    if target is None or TensorSpec.of(target) != TensorSpec.of(value):
        return False
    target.copy_(value)
    return True


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors named "PREFIX/NAME", by NAME."""
    return {key.removeprefix(f"{prefix}/"): value for key, value in tensors.items() if key.startswith(f"{prefix}/")}


def add_prefix(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def tensor_fields(value: Any) -> dict[str, Tensor] | None:
    """The tensors among the fields of a dataclass; None if it holds an object that cannot be sent to a process."""
    if value is None:
        return {}
    if not is_dataclass(value):
        return None
    held = {f.name: getattr(value, f.name) for f in fields(value)}
    tensors = {name: each for name, each in held.items() if isinstance(each, Tensor)}
    return tensors if all(_is_plain(each) for name, each in held.items() if name not in tensors) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | RoundContext)


def replace_fields(state: Any, values: Mapping[str, Tensor | None]) -> Any:
    """A copy of a (frozen) dataclass with some fields replaced."""
    if not values:
        return state
    changed = copy.copy(state)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed
