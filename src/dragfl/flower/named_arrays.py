"""Named arrays of any framework as flat float32 vectors, and back with their names, order, shapes and dtypes.

Three kinds of arrays are kept apart:

    parameters   floating point: the vector w; a client's update is the difference from what it was sent
    statistics   running statistics of BatchNorm and arrays named by the user: averaged, not part of the update
    integers     counters and flags: their change is averaged and rounded
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from torch import Tensor

from dragfl.errors import SpecError
from dragfl.flower.records import FLOATS, INTEGERS, Refused, check_keys, read_array

BATCH_NORM = ("running_mean", "running_var", "num_batches_tracked")  # how names of BatchNorm's statistics end

EXACT = 2**53  # float64 holds every integer up to this one

Kind = Literal["parameter", "statistic", "integer"]
Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Entry:
    """One named array of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]  # on the wire
    kind: Kind

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def accepted(self) -> tuple[np.dtype[Any], ...]:
        """The dtypes in which a client may return it."""
        return FLOATS + INTEGERS if self.kind == "integer" else FLOATS


@dataclass(frozen=True)
class NamedArrays:
    """The names, shapes and dtypes of a model's arrays, in order."""

    entries: tuple[Entry, ...]

    @staticmethod
    def of(record: ArrayRecord, statistics: tuple[str, ...] = ()) -> NamedArrays:
        """The layout of the initial arrays. `statistics`: how the names of further statistics end."""
        entries = []
        for name, array in record.items():
            known = {str(dtype): dtype for dtype in FLOATS + INTEGERS}
            if array.dtype not in known:
                raise SpecError(f"initial arrays: '{name}' is {array.dtype}; give one of {', '.join(known)}")
            dtype, ends = known[array.dtype], name.endswith((*BATCH_NORM, *statistics))
            kind: Kind = "integer" if dtype in INTEGERS else "statistic" if ends else "parameter"
            entries.append(Entry(name, tuple(array.shape), dtype, kind))
        if not any(entry.kind == "parameter" and entry.size for entry in entries):
            raise SpecError(f"initial arrays: none of {len(entries)} arrays is a floating-point parameter to train")
        return NamedArrays(tuple(entries))

    def kind(self, kind: Kind) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]

    @property
    def segments(self) -> tuple[int, ...]:
        """The boundaries of the parameters in w: (0, ..., dim)."""
        return (0, *accumulate(entry.size for entry in self.kind("parameter")))

    def read(self, record: ArrayRecord) -> Values:
        """The arrays of a record as views of its bytes; raise `Refused` where they do not have this layout."""
        check_keys(record, [entry.name for entry in self.entries])
        return {e.name: read_array(record[e.name], e.shape, e.accepted, e.name) for e in self.entries}

    def read_own(self, record: ArrayRecord, what: str) -> Values:
        """The same for arrays of the server itself: what is wrong with them is an error."""
        try:
            values = self.read(record)
        except Refused as refused:
            raise SpecError(f"{what}: {refused}; give arrays with the names and shapes of the initial ones") from None
        bad = [name for name, value in values.items() if not np.isfinite(value).all()]
        if bad:
            raise SpecError(f"{what}: '{bad[0]}' holds NaN or infinite values; check how it was computed")
        return values

    def vector(self, values: Values, kind: Kind = "parameter") -> Tensor:
        """The arrays of one kind as a flat float32 vector."""
        return self._flat(kind, lambda name: values[name])

    def update(self, values: Values, sent: Values) -> Tensor:
        """values - sent of the parameters, subtracted in the wider of their dtypes, then as float32."""
        return self._flat("parameter", lambda name: _difference(values[name], sent[name], np.float32))

    def changes(self, values: Values, sent: Values) -> Tensor:
        """values - sent of the integers."""
        return self._flat("integer", lambda name: _difference(values[name], sent[name], np.float64))

    def _flat(self, kind: Kind, value_of: Callable[[str], NDArray[Any]]) -> Tensor:
        entries = self.kind(kind)
        out, first = np.empty(sum(entry.size for entry in entries), np.float32), 0
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is infinite, and refused as such
            for entry in entries:
                np.copyto(out[first : first + entry.size].reshape(entry.shape), value_of(entry.name), casting="unsafe")
                first += entry.size
        return torch.from_numpy(out)

    def record(self, w: Tensor, statistics: Tensor | None, integers: Values) -> ArrayRecord:
        """The arrays of a model, in the order and dtypes of the initial ones."""
        values = self._pieces("parameter", w)
        for entry in self.kind("integer"):
            value = integers[entry.name]
            values[entry.name] = np.rint(value) if value.dtype in FLOATS else value
        values |= {} if statistics is None else self._pieces("statistic", statistics)
        with np.errstate(over="ignore"):
            return ArrayRecord({e.name: Array(np.asarray(values[e.name]).astype(e.dtype)) for e in self.entries})

    def _pieces(self, kind: Kind, vector: Tensor) -> dict[str, NDArray[Any]]:
        """The arrays of one kind, as views of their vector."""
        entries = self.kind(kind)
        ends = accumulate(entry.size for entry in entries)
        flat = vector.numpy()
        return {e.name: flat[end - e.size : end].reshape(e.shape) for e, end in zip(entries, ends, strict=True)}

    def moved_integers(self, sent: Values, changes: Tensor) -> Values:
        """The integers after a mean change, rounded and kept in the range of their dtype."""
        moved, steps = {}, self._pieces("integer", changes.double().round())
        for entry in self.kind("integer"):
            value, step = sent[entry.name], steps[entry.name]
            low, high = (0, 1) if entry.dtype == bool else (np.iinfo(entry.dtype).min, np.iinfo(entry.dtype).max)
            counted = np.clip(value.astype(np.float64) + step, max(low, -EXACT), min(high, EXACT)).astype(entry.dtype)
            moved[entry.name] = np.where(step == 0, value, counted)
        return moved


def _difference(value: NDArray[Any], sent: NDArray[Any], least: type[np.floating[Any]]) -> NDArray[Any]:
    floats = value.dtype in FLOATS and sent.dtype in FLOATS
    return np.asarray(np.subtract(value, sent, dtype=np.result_type(value, sent, least) if floats else np.float64))
