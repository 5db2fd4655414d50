"""Values on their way to other machines: tensors travel as numpy arrays, which a cluster moves and maps without copies.

A parcel is the value with every tensor in it replaced, however deep in dataclasses, mappings and tuples; whatever else
there is stays as it is. The sender's parts need not know that they travel.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.engine.backends.shared_memory import ALIGN


@dataclass(frozen=True)
class Array:
    """A tensor on its way."""

    values: NDArray[Any]


def packed(value: Any) -> Any:
    """The value without tensors; those of types that numpy does not know are left to whoever carries them."""
    return _walk(value, Tensor, _array)


def unpacked(parcel: Any, shared: bool = False) -> Any:
    """The value again, its tensors the caller's own; `shared`: in the memory they came in, to be read only."""
    return _walk(parcel, Array, lambda array: _tensor(array.values, shared))


def _array(tensor: Tensor) -> Any:
    try:
        return Array(tensor.detach().cpu().contiguous().numpy())
    except TypeError:
        return tensor


def _tensor(values: NDArray[Any], shared: bool) -> Tensor:
    with warnings.catch_warnings():  # of memory that may only be read
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.from_numpy(values)
    return tensor if shared and tensor.data_ptr() % ALIGN == 0 else tensor.clone()


def _walk(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The value with everything of a kind changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _walk(inner, kind, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        items = [_walk(inner, kind, change) for inner in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        made: Any = copy.copy(value)
        inside = vars(value) if hasattr(value, "__dict__") else {f.name: getattr(value, f.name) for f in fields(value)}
        for name, inner in inside.items():
            object.__setattr__(made, name, _walk(inner, kind, change))  # most of them are frozen
        return made
    return value
