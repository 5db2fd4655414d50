"""Memory that a pool and its workers share: one file without a name, mapped by all, and where in it things lie.

The file is a `memfd`, or an unlinked temporary file where the system has none; never one in /dev/shm, which is 64 MB in
many containers. It only grows; who maps it learns the size from the brief of a call and maps it anew.
"""

from __future__ import annotations

import copy
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.types import Partial, RoundContext

ALIGN = 64  # as torch aligns its own memory: some kernels round differently on memory that is not


class Place(NamedTuple):
    """A tensor in the region."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class Shape(NamedTuple):
    """What a tensor is, wherever it lies."""

    dtype: str
    shape: tuple[int, ...]

    @staticmethod
    def of(value: Tensor) -> Shape:
        return Shape(str(value.dtype).removeprefix("torch."), tuple(value.shape))


@dataclass
class Layout:
    """Hands out places one after the other."""

    size: int = 0

    def place(self, what: Shape, rows: tuple[int, ...] = ()) -> Place:
        """Room for a tensor, or with `rows` for so many of them in one."""
        shape = (*rows, *what.shape)
        place = Place(self.size, what.dtype, shape)
        used = math.prod(shape) * dtype_of(what.dtype).itemsize
        self.size += -(-used // ALIGN) * ALIGN
        return place


@dataclass(frozen=True)
class Brief:
    """What holds for all pieces of one call: where they find model and broadcast, and where results go."""

    size: int  # of the region
    header: dict[str, Place]  # "w", "sent/NAME", "attack/FIELD", "plan/FIELD"
    slots: tuple[dict[str, Place], ...] = ()  # "delta", "extra/NAME", "mine/NAME" (state before), "next/NAME" (after),
    # "folded/..." (sums, by the names of `flat`)
    context: RoundContext | None = None
    plan: Any = None  # of the aggregate, without its tensors ("plan/FIELD" in the header)
    attack: Any = field(default=None)  # the attack's state without its tensors


@dataclass(frozen=True)
class Answer:
    """What a worker says of a piece beside what it wrote into the slot."""

    loss: tuple[float, ...]
    steps: tuple[int, ...]
    weight: tuple[float, ...]
    names: tuple[str, ...]  # of what the clients send beside their update
    extra: Mapping[str, NDArray[Any]]  # of that, what the slot has no room for
    states: tuple[Mapping[str, NDArray[Any]], ...]


@dataclass(frozen=True)
class FoldAnswer:
    """What a worker says of a block that it folded, beside the sums that it wrote into the slot."""

    count: int  # 0: there is no partial
    names: tuple[str, ...]
    rest: Mapping[str, NDArray[Any]]  # what the slot has no room for
    used: tuple[bool, ...]
    bytes_up: int
    infeasible: str


def flat(partial: Partial | None) -> dict[str, Tensor]:
    """The tensors of a folded block by one name each: "total", "sums/NAME", "columns/NAME", "extra/NAME"."""
    named: dict[str, Tensor] = {}
    if partial is not None:
        named |= {f"extra/{name}": value for name, value in partial.extra.items()}
        named["total"] = partial.total
        named |= {f"sums/{name}": value for name, value in partial.sums.items()}
        named |= {f"columns/{name}": value for name, value in partial.per_client.items()}
    return named


def unflat(count: int, named: Mapping[str, Tensor]) -> Partial | None:
    if not count:
        return None
    return Partial(count, named["total"], part(named, "sums"), part(named, "columns"), part(named, "extra"))


def put(room: Tensor | None, value: Tensor) -> bool:
    """Copy a tensor to where it belongs; False if there is no such room."""
    if room is None or Shape.of(room) != Shape.of(value):
        return False
    room.copy_(value)
    return True


def tensors_of(value: Any) -> dict[str, Tensor] | None:
    """The tensors among the fields of a dataclass; None if it holds something that only this process can know."""
    if value is None:
        return {}
    if not is_dataclass(value):
        return None
    held = {f.name: getattr(value, f.name) for f in fields(value)}
    tensors = {name: each for name, each in held.items() if isinstance(each, Tensor)}
    return tensors if all(_plain(each) for name, each in held.items() if name not in tensors) else None


def _plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str | RoundContext)


def part(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Those named "KIND/NAME", by their name."""
    return {name.removeprefix(f"{kind}/"): value for name, value in tensors.items() if name.startswith(f"{kind}/")}


class Region:
    """The mapped file. Tensors of it stay valid as long as somebody holds them, whatever becomes of the region."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None
        weakref.finalize(self, os.close, descriptor)

    @staticmethod
    def create() -> Region:
        if hasattr(os, "memfd_create"):
            return Region(os.memfd_create("dragfl"))
        with tempfile.TemporaryFile() as file:
            return Region(os.dup(file.fileno()))

    def grow(self, size: int) -> None:
        """Make the file at least this large, and map it."""
        if os.fstat(self.descriptor).st_size < size:
            os.ftruncate(self.descriptor, size)
        self.reach(size)

    def reach(self, size: int) -> None:
        """Map at least this much of the file."""
        if size > (0 if self._map is None else len(self._map)):
            self._map = mmap.mmap(self.descriptor, size)

    def tensor(self, place: Place) -> Tensor:
        dtype, count = dtype_of(place.dtype), math.prod(place.shape)
        if not count:
            return torch.empty(place.shape, dtype=dtype)
        assert self._map is not None
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=place.offset).view(place.shape)


def with_tensors(state: Any, tensors: Mapping[str, Tensor | None]) -> Any:
    """A state with some of its fields replaced; states are frozen dataclasses."""
    if not tensors:
        return state
    made = copy.copy(state)
    for name, value in tensors.items():
        object.__setattr__(made, name, value)
    return made


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found
