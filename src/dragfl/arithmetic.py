"""Norms, dots and weighted sums of (n, d) blocks: at memory speed, and right for numbers of any size.

Sums run in float32 inside a piece of columns that stays in cache and in float64 across pieces, so no float64 copy of
the block is ever made. A piece that overflows float32 (a row of 1e30, say) is done again in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from dragfl.lazy import Tensor, torch

EPS = 1e-12  # a norm at or below this is treated as zero
PIECE = 8192  # columns; 40 rows of it are 1.3 MB
ROWS = 16  # rows of a block of a Gram matrix
RUN = 512  # columns whose squares are summed in float32: in more of them a row of equal numbers is off by 7e-6
FLOAT32_SAFE = 1e30  # a weight outside [1/this, this] would lose digits or overflow as float32


def _pieces(X: Tensor) -> tuple[Tensor, ...]:
    return torch.split(X, PIECE, -1)


def _exact(total: Tensor, X: Tensor, redo: Callable[[Tensor], Tensor]) -> Tensor:
    """The totals, with those that float32 could not hold done again in float64, a row at a time."""
    for m in (~torch.isfinite(total)).nonzero().flatten().tolist():
        total[m] = redo(X[m].double())
    return total


def _runs(X: Tensor) -> list[Tensor]:
    """Norms of runs of columns, (n, runs) in the dtype of X; the last columns are a run of their own."""
    n, d = X.shape
    whole = d - d % RUN
    runs = [torch.linalg.vector_norm(X[:, :whole].reshape(n, whole // RUN, RUN), dim=2)] if whole else []
    return runs + ([torch.linalg.vector_norm(X[:, whole:], dim=1, keepdim=True)] if whole < d else [])


def _large_norm(row: Tensor) -> Tensor:
    """The norm of a float64 row whose squares may overflow; finite where the row is."""
    largest = row.abs().amax()
    scaled: Tensor = torch.linalg.vector_norm(row / largest)
    return (largest * scaled).clamp_max(torch.finfo(row.dtype).max) if torch.isfinite(largest) else largest


def row_norms(X: Tensor) -> Tensor:
    """(n,) float64 Euclidean norms. A norm is finite exactly where every number of its row is."""
    return _exact(torch.cat(_runs(X), dim=1).double().square_().sum(1).sqrt_(), X, _large_norm)


def row_dots(X: Tensor, v: Tensor) -> Tensor:
    """(n,) float64 dots of every row with v."""
    n, d = X.shape
    whole = d - d % PIECE
    pieces = X[:, :whole].view(n, -1, PIECE).permute(1, 2, 0)  # one call for all of them
    dots = torch.cat([torch.bmm(v[:whole].view(-1, 1, PIECE), pieces)[:, 0], (X[:, whole:] @ v[whole:]).unsqueeze(0)])
    return _exact(dots.double().sum(0), X, lambda row: row @ v.double())


def inverse_norms(norms: Tensor) -> Tensor:
    """1 / |g|, and 0 for a zero update."""
    return torch.where(norms > EPS, 1.0 / norms.clamp_min(EPS), 0.0)


def cross_dots(X: Tensor, Y: Tensor) -> Tensor:
    """(n, m) float64 dots of every row of X with every row of Y."""
    pieces = list(zip(_pieces(X), _pieces(Y), strict=True))
    total = torch.zeros(len(X), len(Y), dtype=torch.float64, device=X.device)
    for x, y in pieces:
        total += x @ y.mT
    large = (~torch.isfinite(total)).any(1).nonzero().flatten()
    if len(large):
        total[large] = sum((x[large].double() @ y.double().mT for x, y in pieces), torch.zeros_like(total[large]))
    return total


def row_gram(X: Tensor) -> Tensor:
    """(n, n) float64 dots of every row of X with every other; the lower half is computed, in blocks of rows."""
    total = torch.zeros(len(X), len(X), dtype=torch.float64, device=X.device)
    for piece in torch.split(X, 8 * PIECE, 1):
        for a in range(0, len(X), ROWS):
            total[a : a + ROWS, : a + ROWS] += piece[a : a + ROWS] @ piece[: a + ROWS].mT
    lower = total.tril()
    return lower + lower.tril(-1).mT


def norm(v: Tensor) -> float:
    """The Euclidean norm of one vector, in float64; finite exactly where every number of it is."""
    if v.dtype == torch.float64:
        size = torch.linalg.vector_norm(v)
        return float(size if torch.isfinite(size) else _large_norm(v))
    return float(row_norms(v.unsqueeze(0)))


def dot(u: Tensor, v: Tensor) -> float:
    """The dot of two vectors, in float64."""
    return float(u @ v) if u.dtype == torch.float64 else float(row_dots(u.unsqueeze(0), v))


def unit(v: Tensor) -> Tensor | None:
    """v / |v|, or None where v has no direction: |v| <= EPS, or v is not finite."""
    size = norm(v)
    if not EPS < size < math.inf:
        return None
    return v / size if size < FLOAT32_SAFE else (v.double() / size).to(v.dtype)


def cosines(norms: Tensor, dots: Tensor) -> Tensor:
    """dots / norms clamped to [-1, 1]; 1 for a zero row: no opinion, so no divergence."""
    zero = norms <= EPS
    return torch.where(zero, 1.0, dots / norms.masked_fill(zero, 1.0)).clamp_(-1.0, 1.0)


def _weighted_sums(weights: Tensor, X: Tensor) -> Tensor:
    """weights @ X; with several rows of weights a piece of columns at a time, which is faster."""
    (j, n), d = weights.shape, X.shape[1]
    whole = d - d % PIECE if j > 1 else 0
    out = X.new_empty(j, d)
    if whole:
        pieces, into = X[:, :whole].view(n, -1, PIECE), out[:, :whole].view(j, -1, PIECE)
        torch.bmm(weights.expand(whole // PIECE, j, n), pieces.transpose(0, 1), out=into.transpose(0, 1))
    torch.mm(weights, X[:, whole:], out=out[:, whole:])
    return out


def combine(weights: Tensor, X: Tensor) -> Tensor:
    """weights (j, n) float64 @ X (n, d) in the dtype of X, one read of X.

    The rows are finite: what is not was dropped before. Rows whose weight float32 cannot hold with full precision (an
    update of size 1e38 shrunk to size 1) are added in float64.
    """
    size = weights.abs()
    odd = ((size > FLOAT32_SAFE) | ((size < 1.0 / FLOAT32_SAFE) & (size > 0))).any(0)
    if X.dtype == torch.float64 or not odd.any():
        return _weighted_sums(weights.to(X.dtype), X)
    out = _weighted_sums(weights.masked_fill(odd, 0.0).to(X.dtype), X.masked_fill(odd.unsqueeze(1), 0.0))
    for m in odd.nonzero().flatten().tolist():
        out += (weights[:, m : m + 1] * X[m].double()).to(X.dtype)
    return out


def finite_rows(norms: Tensor) -> Tensor:
    """The one test of every rule for updates that may be used: (n,) bool from their norms."""
    return torch.isfinite(norms)


@lru_cache(maxsize=4096)
def effective_steps(steps: int, momentum: float, shrink: float = 0.0) -> float:
    """|a|_1 of Wang et al. 2020: how many times lr an update moves along a constant gradient in these local steps.

    v_k = momentum v_(k-1) + 1 - shrink s_(k-1),  s_k = s_(k-1) + v_k;  plain SGD: the number of steps. A step with
    momentum p counts [steps - p (1 - p^steps) / (1 - p)] / (1 - p) in all; shrink is lr mu of a proximal term.

    >>> effective_steps(3, 0.5)  # 1 + 1.5 + 1.75
    4.25
    """
    moved = velocity = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1.0 - shrink * moved
        moved += velocity
    return moved
