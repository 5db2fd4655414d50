"""The arithmetic alone: (n, d) updates in, one (d,) step out, for torch tensors and numpy arrays.

Every function takes the updates of one round as an (n, d) float32 or float64 tensor or array and answers in the same
kind and dtype. Rows that hold a NaN or an infinity are left out, as everywhere in dragfl; if none is left, the step is
zero.

>>> import torch
>>> drag(torch.tensor([[3.0, 4.0], [0.0, 2.0], [-5.0, 0.0]]), torch.tensor([1.0, 0.0]), c=0.25)
tensor([1.2333, 1.7000])
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from dragfl.aggregates.divergence import Divergence
from dragfl.aggregates.dragging import divergences, inverse_norms
from dragfl.arithmetic import combine, cosines, finite_rows, norm, norms_and_dots, row_norms, unit
from dragfl.errors import SpecError
from dragfl.schedules import check_range
from dragfl.types import EPS

Array = TypeVar("Array", Tensor, np.ndarray)

__all__ = ["br_drag", "divergence", "drag", "fltrust", "mean"]


def _matrix(name: str, updates: Tensor | np.ndarray) -> Tensor:
    """The updates as a checked (n, d) tensor, without a copy."""
    X = torch.from_numpy(updates) if isinstance(updates, np.ndarray) else updates
    if not isinstance(X, Tensor):
        raise SpecError(f"{name}: updates are a {type(updates).__name__}; give an (n, d) torch tensor or numpy array")
    if X.ndim != 2 or 0 in X.shape:
        raise SpecError(f"{name}: updates have shape {tuple(X.shape)}; give (n, d) with n >= 1 and d >= 1")
    if X.dtype not in (torch.float32, torch.float64):
        raise SpecError(f"{name}: updates are {X.dtype}; convert them to float32 or float64")
    return X.detach()


def _vector(name: str, what: str, value: Tensor | np.ndarray, X: Tensor) -> Tensor:
    """The reference as a checked (d,) tensor beside X."""
    v = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    if not isinstance(v, Tensor) or v.shape != X.shape[1:]:
        seen = tuple(v.shape) if isinstance(v, Tensor) else type(value).__name__
        raise SpecError(f"{name}: {what} is {seen} and the updates are {tuple(X.shape)}; give a ({X.shape[1]},) vector")
    v = v.detach().to(device=X.device, dtype=X.dtype)
    if not torch.isfinite(v).all():
        raise SpecError(f"{name}: {what} holds a NaN or an infinity; the reference is yours, so mend it first")
    return v


def _like(result: Tensor, updates: Array) -> Array:
    return result.numpy() if isinstance(updates, np.ndarray) else result  # type: ignore[return-value]


def _finite(X: Tensor, norms: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """X, norms and values without the rows that are not finite; no copy where all are."""
    keep = finite_rows(norms)
    return (X, norms, *values) if keep.all() else tuple(v[keep] for v in (X, norms, *values))


def mean(updates: Array) -> Array:
    """The mean update: (1/n) sum_m g_m."""
    X = _matrix("mean", updates)
    X, norms = _finite(X, row_norms(X))
    if not len(X):
        return _like(X.new_zeros(X.shape[1]), updates)
    return _like(combine(torch.full_like(norms, 1.0 / len(X)).unsqueeze(0), X)[0], updates)


def divergence(updates: Array, reference: Array, c: float, kind: Divergence = "linear") -> Array:
    """(n,) degrees of divergence lambda_m = c (1 - cos(g_m, r)); NaN for a row that is not finite."""
    X = _matrix("divergence", updates)
    r = _vector("divergence", "reference", reference, X)
    check_range("divergence", "c", c, 0.0, 1.0)
    rhat = unit(r)
    if rhat is None:
        raise SpecError("divergence: the reference is the zero vector, which has no direction; give another one")
    norms, dots = norms_and_dots(X, rhat)
    _, lam = divergences(norms, dots, c, kind)
    return _like(lam.masked_fill(~finite_rows(norms), torch.nan).to(X.dtype), updates)


def drag(updates: Array, reference: Array, c: float, kind: Divergence = "linear") -> Array:
    """DRAG's step: mean of (1 - lambda_m) g_m + lambda_m |g_m| r/|r|. A zero reference drags nothing."""
    X = _matrix("drag", updates)
    r = _vector("drag", "reference", reference, X)
    check_range("drag", "c", c, 0.0, 1.0)
    rhat = unit(r)
    if rhat is None or c == 0.0:
        return mean(updates)
    X, norms, dots = _finite(X, *norms_and_dots(X, rhat))
    if not len(X):
        return _like(torch.zeros_like(r), updates)
    _, lam = divergences(norms, dots, c, kind)
    step = combine((1.0 - lam).unsqueeze(0) / len(X), X)[0]
    return _like(step.add_(rhat, alpha=float(lam @ norms) / len(X)), updates)


def br_drag(updates: Array, root: Array, c: float, kind: Divergence = "linear") -> Array:
    """BR-DRAG's step: mean of (1 - lambda_m) (|r|/|g_m|) g_m + lambda_m r; zero for a zero root update."""
    X = _matrix("br_drag", updates)
    r = _vector("br_drag", "root", root, X)
    check_range("br_drag", "c", c, 0.0, 1.0)
    rhat = unit(r)
    if rhat is None:
        return _like(torch.zeros_like(r), updates)
    X, norms, dots = _finite(X, *norms_and_dots(X, rhat))
    if not len(X):
        return _like(torch.zeros_like(r), updates)
    _, lam = divergences(norms, dots, c, kind)
    step = combine((norm(r) / len(X) * (1.0 - lam) * inverse_norms(norms)).unsqueeze(0), X)[0]
    return _like(step.add_(r, alpha=float(lam.mean())), updates)


def fltrust(updates: Array, root: Array) -> Array:
    """FLTrust's step: |g_0| sum TS_m g_m/|g_m| / sum TS_m with TS_m = max(0, cos(g_m, g_0)); zero if none is trusted."""
    X = _matrix("fltrust", updates)
    r = _vector("fltrust", "root", root, X)
    rhat = unit(r)
    if rhat is None:
        return _like(torch.zeros_like(r), updates)
    X, norms, dots = _finite(X, *norms_and_dots(X, rhat))
    trust = cosines(norms, dots).clamp_min_(0.0).masked_fill_(norms <= EPS, 0.0)
    total = float(trust.sum())
    if not total > EPS:
        return _like(torch.zeros_like(r), updates)
    return _like(combine((trust * inverse_norms(norms) * (norm(r) / total)).unsqueeze(0), X)[0], updates)
