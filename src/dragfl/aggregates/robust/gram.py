"""Dots and distances of the updates, in float64: what rules that compare whole updates are made of.

One (n, n) matrix of dots is computed in a single sweep over the (n, d) updates and serves a whole chain: where a
pre-aggregator replaces the rows X by P X, their dots are P G P^T. Dots are accumulated in float64 from float64 pieces
of columns, so that a row of 1e38 neither overflows nor blurs the distances between the others, and no copy of the
block is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dragfl.arithmetic import norm, row_dots
from dragfl.lazy import Tensor, torch

PIECE = 8192  # columns
DOTS_PIECE = 2048  # columns whose float64 copy stays in cache: 40 rows of it are 0.7 MB
LOST = 1e-8  # a squared distance below this share of the squared norms has lost half of its digits
LONGEST = 1e150  # its square is still a float64
FLOAT32_SAFE = 1e37  # weighted means of rows up to this norm cannot overflow float32


def pieces(d: int, width: int = PIECE) -> list[slice]:
    """Consecutive slices of at most `width` out of d columns."""
    return [slice(a, min(a + width, d)) for a in range(0, d, width)]


def tame(X: Tensor, norms: Tensor) -> Tensor:
    """X; float64 rows longer than 1e150, whose squares would overflow, are shortened to that length."""
    if X.dtype != torch.float64 or not (norms > LONGEST).any():
        return X
    return X * (LONGEST / norms).clamp_max(1.0).unsqueeze(1)


def dots(X: Tensor, centre: Tensor | None = None) -> Tensor:
    """(n, n) float64 dots of the rows, or of the rows less a (1, d) centre."""
    n, d = X.shape
    G = torch.zeros(n, n, dtype=torch.float64, device=X.device)
    room = torch.empty(n, min(DOTS_PIECE, d), dtype=torch.float64, device=X.device)
    for cut in pieces(d, DOTS_PIECE):
        piece = room[:, : cut.stop - cut.start]
        piece.copy_(X[:, cut])
        if centre is not None:
            piece -= centre[:, cut]
        G.addmm_(piece, piece.T)
    return G


def squared_distances(G: Tensor) -> Tensor:
    """(n, n) squared distances of rows with these dots; never negative, and zero on the diagonal."""
    q = G.diagonal()
    return (q.unsqueeze(0) + q.unsqueeze(1) - 2.0 * G).clamp_min_(0.0).fill_diagonal_(0.0)


def blend(W: Tensor, X: Tensor, largest: float) -> Tensor:
    """W (j, n) float64 @ X (n, b) in the dtype of X, finite; `largest` is the largest norm of a row of X.

    In float64 where float32 could overflow, or could not hold a weight such as 1e-38 with all its digits.
    """
    size = W.abs()
    safe = largest <= FLOAT32_SAFE and not ((size > 0) & ((size < 1e-30) | (size > 1e30))).any()
    if safe or X.dtype == torch.float64:
        return W.to(X.dtype) @ X
    end = torch.finfo(X.dtype).max
    return torch.cat([(W @ X[:, cut].double()).clamp_(-end, end).to(X.dtype) for cut in pieces(X.shape[1])], 1)


@dataclass(frozen=True)
class Gram:
    """The rows of X, or of P X after pre-aggregation, by their dots and distances; each is found when first used."""

    X: Tensor  # (n, d), finite
    norm: Tensor  # (n,) float64 norms of X
    root: Gram | None = None  # of X itself, where P is given
    P: Tensor | None = None  # (n', n) float64
    members: Tensor | None = None  # (n', n), not zero where a client is in a bucket; None: row i is client i
    model: Tensor | None = None  # (d,) the model that was sent out, for a rule that compares local models

    def __len__(self) -> int:
        return len(self.X) if self.P is None else len(self.P)

    @cached_property
    def dots(self) -> Tensor:
        """(n', n') float64."""
        if self.root is None or self.P is None:
            return dots(self.X)
        return self.P @ self.root.dots @ self.P.T

    @cached_property
    def model_dots(self) -> Tensor:
        """(n', n') dots of the local models: <w + g_i, w + g_j> = <g_i, g_j> + <g_i, w> + <g_j, w> + |w|^2."""
        assert self.model is not None
        along = row_dots(self.X, self.model)
        along = along if self.P is None else self.P @ along
        return self.dots + along.unsqueeze(0) + along.unsqueeze(1) + norm(self.model) ** 2

    @cached_property
    def norms(self) -> Tensor:
        """(n',) float64."""
        return self.norm if self.P is None else self.dots.diagonal().clamp_min(0.0).sqrt()

    @cached_property
    def squared(self) -> Tensor:
        """(n', n') squared distances, symmetric to the last bit."""
        D = squared_distances(self.dots)
        D = self._refined(D) if self.root is None or self.P is None else self._of_mixed(D, self.root, self.P)
        return torch.maximum(D, D.T)

    def _refined(self, D: Tensor) -> Tensor:
        """D, where rows that nearly coincide are measured again from one of them, with all digits."""
        q = self.dots.diagonal()
        near = (LOST * (q.unsqueeze(0) + q.unsqueeze(1)) > D).fill_diagonal_(False)
        for group in _groups(near):
            rows = torch.tensor(group, device=D.device)
            D[rows.unsqueeze(1), rows] = squared_distances(_dots_among(self.X, rows))
        return D

    def _of_mixed(self, D: Tensor, root: Gram, P: Tensor) -> Tensor:
        """Between weighted means |(p - q) X|^2 = -(p - q) D (p - q)^T / 2, in which a part common to all cancels."""
        Q = P @ root.squared @ P.T
        q = Q.diagonal() / 2.0
        means = (P.sum(1) - 1.0).abs() < 1e-12
        fine = (Q - q.unsqueeze(0) - q.unsqueeze(1)).clamp_min_(0.0).fill_diagonal_(0.0)
        return torch.where(means.unsqueeze(0) & means.unsqueeze(1), fine, D)

    def mixed(self, P: Tensor, buckets: Tensor | None = None) -> Gram:
        """Of P times these rows; `buckets` is P where its rows are buckets of clients and not one client's each."""
        total = P if self.P is None else P @ self.P
        members = self.members
        if buckets is not None:
            members = buckets if members is None else buckets @ members
        return Gram(self.X, self.norm, self.root or self, total, members, self.model)

    def distances(self, weights: Tensor) -> Tensor:
        """(n',) distances of the rows from z = weights @ rows: |z|^2 - 2 <z, g_i> + |g_i|^2.

        A row of 1e30 with a weight of 1e-30 adds numbers around 1 to this. In the same formula with squared distances
        for dots it would add 1e30, to be subtracted again.
        """
        along = self.dots @ weights
        return (weights @ along - 2.0 * along + self.dots.diagonal()).clamp_min_(0.0).sqrt()

    def sample(self, columns: NDArray[np.int64]) -> Tensor:
        """(n', b) the rows at some columns."""
        part = self.X[:, torch.from_numpy(columns).to(self.X.device)]
        return part if self.P is None else blend(self.P, part, float(self.norm.max()))


def _dots_among(X: Tensor, rows: Tensor) -> Tensor:
    """`dots` of some rows less the first of them, without a copy of those rows."""
    G = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=X.device)
    for cut in pieces(X.shape[1]):
        G += dots(X[rows, cut], centre=X[rows[:1], cut].double())
    return G


def _groups(near: Tensor) -> list[list[int]]:
    """Connected components of two rows or more."""
    left = set(near.any(1).nonzero().flatten().tolist())
    groups = []
    while left:
        group, edge = set[int](), {min(left)}
        while edge:
            group |= edge
            edge = set(near[sorted(edge)].any(0).nonzero().flatten().tolist()) - group
        groups.append(sorted(group))
        left -= group
    return groups
