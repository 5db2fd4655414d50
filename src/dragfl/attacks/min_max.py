"""Min-Max and Min-Sum: as far from the honest mean as the honest updates are from each other.

V. Shejwalkar, A. Houmansadr, Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning, NDSS 2021.

    b = mu + gamma p,   p = -mu/|mu| ("unit"), -sign(mu) ("sign") or -sigma ("std")
    Min-Max: the largest gamma with max_i |b - g_i| <= max_ij |g_i - g_j| = D
    Min-Sum: the largest gamma with sum_i |b - g_i|^2 <= max_i sum_j |g_i - g_j|^2

Both have closed forms. With u_i = mu - g_i, Min-Max is the smallest of the larger roots of |u_i + gamma p|^2 = D^2. In
Min-Sum sum_j |g_i - g_j|^2 = h |u_i|^2 + sum_j |u_j|^2, so the condition is h gamma^2 |p|^2 <= h max_i |u_i|^2:
gamma = max_i |u_i| / |p|, and with the bound of the authors' notebooks (min over i) gamma = min_i |u_i| / |p|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dragfl.arithmetic import EPS, norm, row_dots, row_norms, unit
from dragfl.arrays import Array
from dragfl.attacks.common import SampleKnowledge, clean_rows, copies, forge_from_clean, moments
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice, check_choices
from dragfl.types import NoState, RoundContext, Updates, View, no_state

Direction = Literal["unit", "sign", "std"]
Bound = Literal["max", "min"]


def squared_distances(X: Tensor) -> Tensor:
    """(n, n) float64 squared distances between rows, from their Gram matrix around the first row, piece by piece."""
    gram = torch.zeros(len(X), len(X), dtype=torch.float64, device=X.device)
    for a in range(0, X.shape[1], 8192):
        piece = X[:, a : a + 8192].double()
        piece = piece - piece[0]
        gram += piece @ piece.T
    squares = gram.diagonal()
    return (squares[:, None] + squares - 2.0 * gram).clamp_min_(0.0).fill_diagonal_(0.0)


def _towards(X: Tensor, direction: Direction) -> tuple[Tensor, Tensor]:
    """(mu, p). A mean of zero has no direction, nor has its sign: then p = -sigma."""
    mu, sigma = moments(X)
    away = unit(mu) if direction == "unit" else torch.sign(mu)
    return mu, -sigma if direction == "std" or away is None or norm(mu) <= EPS else -away


def min_max(honest: Array, f: int, direction: Direction = "unit") -> Array:
    """The update no further from any honest one (h, d) than the two furthest are apart, from all f attackers."""
    X = clean_rows("min_max", honest, f)
    check_choice("min_max", "direction", direction, get_args(Direction))
    mu, p = _towards(X, direction)
    square = norm(p) ** 2
    if square <= EPS**2:
        return copies(mu, f, honest)
    U = mu - X
    dots, sizes = row_dots(U, p), row_norms(U)
    room = float(squared_distances(X).max()) - sizes.square()
    gamma = (-dots + (dots.square() + square * room).clamp_min(0.0).sqrt()) / square
    return copies(mu + max(0.0, float(gamma.min())) * p, f, honest)


def min_sum(honest: Array, f: int, direction: Direction = "unit", bound: Bound = "max") -> Array:
    """The update no further from all honest ones (h, d) together than the outermost of them, from all f attackers.

    `bound = "min"` takes the innermost one instead, as the authors' released notebooks do.
    """
    X = clean_rows("min_sum", honest, f)
    check_choice("min_sum", "direction", direction, get_args(Direction))
    check_choice("min_sum", "bound", bound, get_args(Bound))
    mu, p = _towards(X, direction)
    sizes, length = row_norms(mu - X), norm(p)
    gamma = float(sizes.max() if bound == "max" else sizes.min()) / length if length > EPS else 0.0
    return copies(mu + gamma * p, f, honest)


@dataclass(frozen=True)
class MinMax:
    """Sends an update no further from any honest one than the two most distant honest updates are apart.

    | argument | symbol |
    |---|---|
    | direction | p: `unit`, `sign` or `std` |
    | knowledge | `colluding` uses the attackers' clean updates, `omniscient` the honest ones |
    """

    direction: Direction = "unit"
    knowledge: SampleKnowledge = "omniscient"

    init = no_state

    def __post_init__(self) -> None:
        check_choices("min_max", self)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return forge_from_clean(view, lambda clean, f: min_max(clean, f, self.direction)), state


@dataclass(frozen=True)
class MinSum:
    """Sends an update with at most the largest sum of squared distances of an honest one to all others.

    | argument | symbol |
    |---|---|
    | direction | p: `unit`, `sign` or `std` |
    | bound | `max` over the honest, or `min` as in the authors' notebooks |
    | knowledge | `colluding` uses the attackers' clean updates, `omniscient` the honest ones |
    """

    direction: Direction = "unit"
    bound: Bound = "max"
    knowledge: SampleKnowledge = "omniscient"

    init = no_state

    def __post_init__(self) -> None:
        check_choices("min_sum", self)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return forge_from_clean(view, lambda clean, f: min_sum(clean, f, self.direction, self.bound)), state
