"""The adaptive attack on BR-DRAG: the strongest update against a known reference, in closed form.

BR-DRAG turns an update in the direction e, at x = cos(e, r) to the reference, into
v = |r| ((1 - lambda) e + lambda rhat), lambda = c (1 - x), whatever its length. The effect is known exactly:

    along:   <v, rhat>/|r| = x + c (1 - x)^2         least at x = -1 for c <= 1/4: 4c - 1
                                                     else at x = 1 - 1/(2c): 1 - 1/(4c), which is not negative
    across:  |v off r|/|r| = (1 - lambda) sqrt(1 - x^2)   most at x = (sqrt((1-c)^2 + 8 c^2) - (1-c)) / (4c)

So for c <= 1/4 the strongest pull against the reference is its exact reversal, for larger c no update pulls against it,
and only damage across r is left. There attackers take the side opposite to the honest updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from dragfl.arithmetic import EPS, dot, norm, unit
from dragfl.arrays import Array, vector
from dragfl.attacks.common import clean_rows, copies, forge_from_clean
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice, check_choices, check_range
from dragfl.types import Knowledge, NoState, RoundContext, Updates, View, no_state

Goal = Literal["along", "across"]


def best_cosine(c: float, goal: Goal) -> float:
    """x of the strongest update.

    >>> [round(best_cosine(c, goal), 4) for c, goal in [(0.25, "along"), (0.5, "along"), (0.25, "across")]]
    [-1.0, 0.0, 0.2808]
    """
    if goal == "along":
        return -1.0 if c <= 0.25 else 1.0 - 1.0 / (2.0 * c)
    return (math.sqrt((1.0 - c) ** 2 + 8.0 * c**2) - (1.0 - c)) / (4.0 * c) if c > 0.0 else 0.0


def _across(X: Tensor, rhat: Tensor) -> Tensor:
    """A unit vector at right angles to rhat, against the mean of X; zero where there is none, as in one dimension."""
    axis = torch.zeros_like(rhat)
    axis[int(rhat.abs().argmin())] = 1.0  # where the honest mean is along r, any direction will do
    for v in (X.mean(0), axis):
        off = v - dot(v, rhat) * rhat
        if norm(off) > 1e-5 * norm(v) + EPS and (side := unit(off - dot(off, rhat) * rhat)) is not None:
            return -side
    return torch.zeros_like(rhat)


def adaptive_br_drag(honest: Array, f: int, root: Array, c: float, goal: Goal = "along") -> Array:
    """|r| e from all f attackers, e the direction that most reverses BR-DRAG's step along r, or most turns it away.

    `root` (d,) is the reference r; of the honest updates (h, d) only the side of r on which their mean lies is used.
    """
    X = clean_rows("adaptive_br_drag", honest, f)
    r = vector("adaptive_br_drag", "root", root, X)
    check_range("adaptive_br_drag", "c", c, 0.0, 1.0)
    check_choice("adaptive_br_drag", "goal", goal, get_args(Goal))
    rhat = unit(r)
    if rhat is None:  # nothing moves the step of a round without a reference
        return copies(-X.mean(0), f, honest)
    x, side = best_cosine(c, goal), _across(X, rhat)
    e = x * rhat + math.sqrt(1.0 - x * x) * side
    return copies(norm(r) * (e if norm(side) > 0.0 else -rhat), f, honest)


@dataclass(frozen=True)
class AdaptiveBRDrag:
    """Sends the strongest update against BR-DRAG, in closed form.

    If the rule has no reference, the mean honest update is used.

    | argument | symbol |
    |---|---|
    | c | the c that the attackers take the server to use |
    | goal | reverse the step `along` r, or turn it `across` |
    """

    c: float = 0.25
    goal: Goal = "along"

    knowledge: ClassVar[Knowledge] = "white_box"
    init = no_state

    def __post_init__(self) -> None:
        check_choices("adaptive_br_drag", self)
        check_range("adaptive_br_drag", "c", self.c, 0.0, 1.0)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        def forge(clean: Tensor, f: int) -> Tensor:
            root = clean.mean(0) if view.reference is None else view.reference
            return adaptive_br_drag(clean, f, root, self.c, self.goal)

        return forge_from_clean(view, forge), state
