"""The convex cone of some directions, {sum_k a_k u_k, a >= 0}: the fit of vectors to it, and how far it is open.

The projection of a vector on the cone is a non-negative least-squares problem in the dots <u_k, u_l> and <z, u_k>, so
no vector of the space is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragfl.arithmetic import EPS, cross_dots, inverse_norms, row_gram
from dragfl.lazy import Tensor, torch
from dragfl.nnls import nnls


@dataclass(frozen=True)
class Cone:
    """Directions D_k with u_k = D_k / |D_k|."""

    directions: Tensor  # (K, d) D_k
    lengths: Tensor  # (K,) |D_k|; 0 where a direction is left out
    gram: Tensor  # (K, K) <u_k, u_l>


def cone_of(directions: Tensor) -> Cone:
    """The cone of (K, d) directions. One that is zero or not finite is left out."""
    dots = row_gram(directions)
    squares = dots.diagonal()
    lengths = torch.where(torch.isfinite(squares) & (squares > EPS**2), squares, 0.0).sqrt()
    usable = lengths > 0
    directions = directions if usable.all() else directions.masked_fill(~usable.unsqueeze(1), 0.0)
    inverse = inverse_norms(lengths)
    gram = dots.masked_fill(~(usable.unsqueeze(1) & usable), 0.0) * inverse.unsqueeze(1) * inverse
    gram.diagonal().copy_(torch.ones_like(lengths))
    return Cone(directions, lengths, gram)


def fits(cone: Cone, X: Tensor, norms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x, x^-, coefficients of the projection of z = g/|g|, and of -z) of the rows g of X; x = |projection of z|.

    A zero row fits neither way.
    """
    dots = cross_dots(X, cone.directions) * inverse_norms(cone.lengths)
    cosines = (dots * inverse_norms(norms).unsqueeze(1)).clamp(-1.0, 1.0)
    both = torch.cat([cosines, -cosines])
    mixes = nnls(cone.gram, both)
    fit = (mixes * both).sum(1).clamp(0.0, 1.0).sqrt()  # |P z|^2 = <P z, z>
    n = len(X)
    return fit[:n], fit[n:], mixes[:n], mixes[n:]


def opening(cone: Cone) -> float:
    """The distance of 0 from the convex hull of the unit directions: 0 where the cone is a subspace, or without any.

    The nearest point has the weights a / sum a with a = argmin_(a >= 0) a^T G a / 2 - sum a.
    """
    a = nnls(cone.gram, (cone.lengths > 0).double().unsqueeze(0))[0]
    total = float(a.sum())
    return float((a @ cone.gram @ a).clamp_min(0.0).sqrt()) / total if total > 0 else 0.0
