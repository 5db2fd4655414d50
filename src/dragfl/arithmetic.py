"""Norms, dots and weighted sums of (n, d) blocks: at memory speed, and right for numbers of any size.

Sums run in float32 inside a piece of columns that stays in cache and in float64 across pieces, so no float64 copy of
the block is ever made. A piece that overflows float32 (a row of 1e30, say) is done again in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dragfl.types import EPS

PIECE = 8192  # columns; 40 rows of it are 1.3 MB
FLOAT32_SAFE = 1e30  # a weight outside [1/this, this] would lose digits or overflow as float32


def _pieces(d: int) -> range:
    return range(0, d, PIECE)


def _square_norms(piece: Tensor) -> Tensor:
    """(n,) float64 squared row norms of one piece."""
    norms: Tensor = torch.linalg.vector_norm(piece, dim=1).double()
    bad = ~torch.isfinite(norms)
    if bad.any():  # overflow, or a number that is not finite to begin with: float64 tells which
        norms[bad] = torch.linalg.vector_norm(piece[bad].double(), dim=1)
    return norms.square_()


def _dots(piece: Tensor, v: Tensor) -> Tensor:
    """(n,) float64 dots of the rows of one piece with v."""
    dots = (piece @ v).double()
    bad = ~torch.isfinite(dots)
    if bad.any():
        dots[bad] = piece[bad].double() @ v.double()
    return dots


def _roots(X: Tensor, squares: Tensor) -> Tensor:
    """Norms from sums of squares; rows of a float64 X whose squares overflow are scaled first."""
    norms = squares.sqrt_()
    bad = ~torch.isfinite(norms)
    if X.dtype == torch.float64 and bad.any():
        largest = X[bad].abs().amax(1)
        scaled = torch.linalg.vector_norm(X[bad] / largest.unsqueeze(1), dim=1)
        top = torch.finfo(torch.float64).max
        norms[bad] = torch.where(torch.isfinite(largest), (largest * scaled).clamp_max(top), largest)
    return norms


def row_norms(X: Tensor) -> Tensor:
    """(n,) float64 Euclidean norms. A norm is finite exactly where every number of its row is."""
    total = torch.zeros(X.shape[0], dtype=torch.float64, device=X.device)
    for a in _pieces(X.shape[1]):
        total += _square_norms(X[:, a : a + PIECE])
    return _roots(X, total)


def row_dots(X: Tensor, v: Tensor) -> Tensor:
    """(n,) float64 dots of every row with v."""
    total = torch.zeros(X.shape[0], dtype=torch.float64, device=X.device)
    for a in _pieces(X.shape[1]):
        total += _dots(X[:, a : a + PIECE], v[a : a + PIECE])
    return total


def norms_and_dots(X: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """`row_norms` and `row_dots` in one sweep over memory."""
    squares = torch.zeros(X.shape[0], dtype=torch.float64, device=X.device)
    dots = torch.zeros_like(squares)
    for a in _pieces(X.shape[1]):
        piece = X[:, a : a + PIECE]
        squares += _square_norms(piece)
        dots += _dots(piece, v[a : a + PIECE])
    return _roots(X, squares), dots


def norm(v: Tensor) -> float:
    """The Euclidean norm of one vector, in float64."""
    return float(row_norms(v.unsqueeze(0)))


def dot(u: Tensor, v: Tensor) -> float:
    """The dot of two vectors, in float64."""
    return float(row_dots(u.unsqueeze(0), v))


def unit(v: Tensor) -> Tensor | None:
    """v / |v|, or None where v has no direction: |v| <= EPS, or v is not finite."""
    size = norm(v)
    return (v.double() / size).to(v.dtype) if EPS < size < math.inf else None


def cosines(norms: Tensor, dots: Tensor) -> Tensor:
    """dots / norms clamped to [-1, 1]; 1 for a zero row: no opinion, so no divergence."""
    zero = norms <= EPS
    return torch.where(zero, 1.0, dots / norms.masked_fill(zero, 1.0)).clamp_(-1.0, 1.0)


def combine(weights: Tensor, X: Tensor) -> Tensor:
    """weights (j, n) float64 @ X (n, d) in the dtype of X, one read of X.

    Rows whose weight float32 cannot hold with full precision (an update of size 1e38 shrunk to size 1) are added in
    float64. A row of weight 0 adds nothing, whatever it holds.
    """
    size = weights.abs()
    odd = (size == 0).any(0)
    if odd.any():  # 0 * inf is NaN: such rows are added one by one if they are not finite
        odd[odd.clone()] = ~finite_rows(row_norms(X[odd]))
    if X.dtype != torch.float64:
        odd |= ((size > FLOAT32_SAFE) | ((size < 1.0 / FLOAT32_SAFE) & (size > 0))).any(0)
    if not odd.any():
        return weights.to(X.dtype) @ X
    out = weights.masked_fill(odd, 0.0).to(X.dtype) @ X.masked_fill(odd.unsqueeze(1), 0.0)
    for m in odd.nonzero().flatten().tolist():
        w = weights[:, m : m + 1]
        out += torch.where(w == 0, 0.0, w * X[m].double()).to(X.dtype)
    return out


def finite_rows(norms: Tensor) -> Tensor:
    """The one test of every rule for updates that may be used: (n,) bool from their norms."""
    return torch.isfinite(norms)
