"""Compare nested values bit for bit or within a float tolerance."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragfl.types import Updates

TOLERANCE = 1e-4  # relative to the largest value, or to 1; float32 sums in another order differ by much less


def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Every tensor, number and string in a value, with its path."""
    children: Iterable[tuple[str, object]]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        children = [(f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
        if isinstance(value, Updates):
            children = [*children, (".norm", value.norm)]  # cached: a rule may change it for later readers
    elif isinstance(value, Mapping):
        children = [(f"[{key!r}]", child) for key, child in value.items()]
    elif isinstance(value, list | tuple):
        children = [(f"[{i}]", child) for i, child in enumerate(value)]
    elif hasattr(value, "__dict__") and not isinstance(value, Tensor | type) and not callable(value):
        children = [(f".{name}", child) for name, child in vars(value).items()]
    else:
        yield path, value
        return
    for step, child in children:
        yield from leaves(child, path + step)


def snapshot(values: Mapping[str, object]) -> dict[str, object]:
    """A copy of the leaves of named values that compares bit for bit."""
    return {path: _frozen(leaf) for name, value in values.items() for path, leaf in leaves(value, name)}


def _frozen(leaf: object) -> object:
    if isinstance(leaf, Tensor):
        data = leaf.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        return leaf.dtype, tuple(leaf.shape), data
    if isinstance(leaf, np.ndarray):
        return leaf.dtype, leaf.shape, leaf.tobytes()
    if callable(leaf) and not hasattr(leaf, "__qualname__"):  # an object that is called, such as functools.partial
        with suppress(Exception):  # it does not say how it is made
            return snapshot({"": leaf.__reduce_ex__(4)[1:]})
    return repr(leaf) if isinstance(leaf, float) else leaf


def changed_paths(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """The paths that differ between two snapshots, or an empty string."""
    missing = object()
    paths = [p for p in {**before, **after} if before.get(p, missing) != after.get(p, missing)]
    return ", ".join(paths[:3])


def different_bits(a: object, b: object, name: str) -> str:
    """The paths at which two values are not bit for bit the same, or an empty string."""
    return changed_paths(snapshot({name: a}), snapshot({name: b}))


def differences(a: Mapping[str, object], b: Mapping[str, object]) -> str:
    """The first difference of named values beyond the tolerance, with the numbers; or an empty string."""
    left, right = (dict(leaf for name, value in x.items() for leaf in leaves(value, name)) for x in (a, b))
    for path in {**left, **right}:
        if path not in left or path not in right:
            return f"{path} exists in one case only"
        if seen := _gap(left[path], right[path]):
            return f"{path} {seen}"
    return ""


def _gap(x: object, y: object) -> str:
    if not isinstance(x, Tensor | float | int) or not isinstance(y, Tensor | float | int):
        return "" if x == y else f"is {x!r} in one case and {y!r} in the other"
    u, v = torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)
    if u.shape != v.shape:
        return f"has shape {tuple(u.shape)} in one case and {tuple(v.shape)} in the other"
    if not u.numel():
        return ""
    gap, size = float((u - v).abs().max()), float(torch.maximum(u.abs(), v.abs()).max())
    if gap <= TOLERANCE * max(1.0, size):
        return ""
    return f"differs by {gap:.3g}, the largest value being {size:.3g}"


def is_frozen_dataclass(value: object) -> bool:
    """Whether a value is an instance of a frozen dataclass."""
    params: Any = getattr(type(value), "__dataclass_params__", None)
    return params is not None and bool(params.frozen)


def describe_non_finite(value: Tensor) -> str:
    """The number of non-finite values of a tensor, and the first."""
    bad = value[~torch.isfinite(value)]
    return f"{len(bad)} non-finite numbers, such as {float(bad[0])}"
