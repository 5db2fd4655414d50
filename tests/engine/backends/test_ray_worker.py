"""Whatever travels arrives as it was: tensors of any type and place, in anything that parts pass to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from dragfl.engine.backends.ray_arrays import Array, packed, unpacked
from torch import Tensor

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
class Slim:
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


def test_there_and_back() -> None:
    value = {
        "plan": Plan(torch.arange(6.0).reshape(2, 3).T, (Plan(torch.tensor(True), None), Pair(torch.ones(0), 4))),
        "now": RoundContext(3, 0.1, 7),
        "attackers": frozenset({1, 2}),
        "updates": Updates(torch.randn(2, 5), torch.ones(2, dtype=torch.float64), torch.tensor([3, 8])),
    }
    parcel = packed(value)
    assert isinstance(parcel["plan"].values, Array) and isinstance(parcel["plan"].inner[1].left, Array)
    assert same(unpacked(parcel), value)


def test_slots_and_what_was_computed_on_the_way() -> None:
    assert torch.equal(unpacked(packed(Slim(torch.ones(2)))).values, torch.ones(2))
    updates = Updates(torch.randn(2, 5), torch.ones(2), torch.tensor([0, 1]))
    norm = updates.norm
    assert torch.equal(unpacked(packed(updates)).norm, norm)
    assert isinstance(updates.delta, Tensor), "the sender's own stays as it is"


def test_what_numpy_does_not_know_is_left_to_the_carrier() -> None:
    value = torch.ones(3, dtype=torch.bfloat16)
    assert packed(value) is value and unpacked(value) is value


def test_memory() -> None:
    """The receiver's own; where it is shared, the very memory, unless kernels would round otherwise there."""
    room = np.zeros(64, dtype=np.float32)
    start = next(i for i in range(16) if room[i:].ctypes.data % 64 == 0)
    aligned, crooked = Array(room[start : start + 8]), Array(room[start + 1 : start + 9])
    aligned.values.flags.writeable = False
    assert unpacked(aligned).data_ptr() != aligned.values.ctypes.data
    assert unpacked(aligned, shared=True).data_ptr() == aligned.values.ctypes.data
    assert unpacked(crooked, shared=True).data_ptr() % 64 == 0
