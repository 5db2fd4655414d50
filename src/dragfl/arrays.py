"""Updates as users hold them: an (n, d) torch tensor or numpy array in, the same kind out."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from dragfl.arithmetic import norm
from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch

Array = TypeVar("Array", "Tensor", "np.ndarray")


def tensor(name: str, what: str, array: np.ndarray) -> Tensor:
    """A numpy array as a tensor: its memory where torch can use it as it is, otherwise a copy."""
    if array.dtype.kind not in "fiub":
        raise SpecError(f"{name}: {what} are numpy {array.dtype}; convert them to float32 or float64")
    foreign = not array.dtype.isnative
    if foreign or not array.flags.writeable or any(step < 0 for step in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # an unusual dtype (long double) or a field of a record array
        raise SpecError(f"{name}: {what} are numpy {array.dtype}; convert them to float32 or float64") from None


def matrix(name: str, updates: Tensor | np.ndarray) -> Tensor:
    """The updates as a checked (n, d) tensor, without a copy; `name` is whose argument it is."""
    X = tensor(name, "updates", updates) if isinstance(updates, np.ndarray) else updates
    if not isinstance(X, torch.Tensor):
        raise SpecError(f"{name}: updates are a {type(updates).__name__}; give an (n, d) torch tensor or numpy array")
    if X.ndim != 2 or 0 in X.shape:
        raise SpecError(f"{name}: updates have shape {tuple(X.shape)}; give (n, d) with n >= 1 and d >= 1")
    if X.dtype not in (torch.float32, torch.float64):
        raise SpecError(f"{name}: updates are {X.dtype}; convert them to float32 or float64")
    return X.detach()


def vector(name: str, what: str, value: Tensor | np.ndarray, X: Tensor) -> Tensor:
    """A vector of the server as a checked (d,) tensor with the device and dtype of X."""
    v = tensor(name, what, value) if isinstance(value, np.ndarray) else value
    if not isinstance(v, torch.Tensor) or v.shape != X.shape[1:]:
        seen = tuple(v.shape) if isinstance(v, torch.Tensor) else type(value).__name__
        raise SpecError(f"{name}: {what} is {seen} and the updates are {tuple(X.shape)}; give a ({X.shape[1]},) vector")
    v = v.detach().to(device=X.device, dtype=X.dtype)

    if not math.isfinite(float(v.sum())) and not math.isfinite(norm(v)):  # a sum is quick, and may only overflow
        raise SpecError(f"{name}: {what} holds a NaN or an infinity; it comes from the server, so fix its computation")
    return v


def vectors(name: str, what: str, value: Tensor | np.ndarray, X: Tensor) -> Tensor:
    """Vectors of the server as a checked (K, d) tensor with the device and dtype of X; they need not be finite."""
    v = tensor(name, what, value) if isinstance(value, np.ndarray) else value
    if not isinstance(v, torch.Tensor) or v.ndim != 2 or not len(v) or v.shape[1] != X.shape[1]:
        seen = tuple(v.shape) if isinstance(v, torch.Tensor) else f"a {type(value).__name__}"
        wanted = f"(K, {X.shape[1]}) with one row for each class"
        raise SpecError(f"{name}: {what} are {seen} and the updates are {tuple(X.shape)}; give {wanted}")
    return v.detach().to(device=X.device, dtype=X.dtype)


def like(result: Tensor, updates: Array) -> Array:
    """The result in the kind of the updates."""
    return result.numpy() if isinstance(updates, np.ndarray) else result
