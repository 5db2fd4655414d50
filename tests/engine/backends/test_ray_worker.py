"""Values that travel to Ray workers arrive unchanged: tensors of any type, at any depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragfl.engine.backends.ray_worker import Array, to_arrays, to_tensors
from dragfl.types import RoundContext, Updates


class Pair(NamedTuple):
    left: Tensor
    right: int


@dataclass(frozen=True)
class Plan:
    values: Tensor
    inner: Any
    count: int = 3


@dataclass(frozen=True, slots=True)
class WithSlots:
    values: Tensor


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Plan | Updates):
        return type(one) is type(other) and same(vars(one), vars(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return type(one) is type(other) and all(map(same, one, other))
    return bool(one == other)


def test_round_trip() -> None:
    value = {
        "plan": Plan(torch.arange(6.0).reshape(2, 3).T, (Plan(torch.tensor(True), None), Pair(torch.ones(0), 4))),
        "now": RoundContext(3, 0.1, 7),
        "attackers": frozenset({1, 2}),
        "updates": Updates(torch.randn(2, 5), torch.ones(2, dtype=torch.float64), torch.tensor([3, 8])),
    }
    arrays = to_arrays(value)
    assert isinstance(arrays["plan"].values, Array) and isinstance(arrays["plan"].inner[1].left, Array)
    assert same(to_tensors(arrays), value)


def test_slots_and_cached_properties() -> None:
    assert torch.equal(to_tensors(to_arrays(WithSlots(torch.ones(2)))).values, torch.ones(2))
    updates = Updates(torch.randn(2, 5), torch.ones(2), torch.tensor([0, 1]))
    norm = updates.norm
    assert torch.equal(to_tensors(to_arrays(updates)).norm, norm)
    assert isinstance(updates.delta, Tensor), "the original is unchanged"


def test_a_type_that_numpy_does_not_have_stays_a_tensor() -> None:
    value = torch.ones(3, dtype=torch.bfloat16)
    assert to_arrays(value) is value and to_tensors(value) is value


def test_memory_is_copied_or_shared() -> None:
    """Copies by default. `shared` returns the same memory, unless it is not aligned."""
    buffer = np.zeros(64, dtype=np.float32)
    start = next(i for i in range(16) if buffer[i:].ctypes.data % 64 == 0)
    aligned, unaligned = Array(buffer[start : start + 8]), Array(buffer[start + 1 : start + 9])
    aligned.values.flags.writeable = False
    assert to_tensors(aligned).data_ptr() != aligned.values.ctypes.data
    assert to_tensors(aligned, shared=True).data_ptr() == aligned.values.ctypes.data
    assert to_tensors(unaligned, shared=True).data_ptr() % 64 == 0
