"""The adaptive attack on Cone DRAG: the strongest update that still fits the cone of the class gradients.

Cone DRAG weights an update z by w = |x - x^-|, its fit to the cone minus that of -z, so an attacker gains nothing from
leaving the cone. Inside it every direction has x = 1. All attackers send the direction z that most reduces

    w(z) <z, h>,    h = the mean honest update, or the root update r

among the unit directions u_k of the classes and the projection of -h on the cone, its member that is most opposed to h.
With `goal = "class"` they send u_k of one class, as clients that have only this class: every sample is then drawn
towards it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from dragfl.arithmetic import inverse_norms, row_norms, unit
from dragfl.arrays import Array, vector, vectors
from dragfl.attacks.common import clean_rows, copies, forge_from_clean
from dragfl.cone import cone_of, fits
from dragfl.errors import SettingError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice, check_choices
from dragfl.types import Knowledge, NoState, RoundContext, Updates, View, no_state

Goal = Literal["honest", "root", "class"]


def adaptive_cone(
    honest: Array, f: int, directions: Array, root: Array | None = None, goal: Goal = "honest", target: int = 0
) -> Array:
    """The same update from all f attackers: the direction of the cone that most reduces w <z, h>.

    `directions` (K, d) are those of the rule; h is the mean honest update, or with `goal = "root"` the root update.
    With `goal = "class"` z is direction `target`.
    """
    X = clean_rows("adaptive_cone", honest, f)
    check_choice("adaptive_cone", "goal", goal, get_args(Goal))
    D = vectors("adaptive_cone", "directions", directions, X)
    mean = X.mean(0)
    opposed = mean if goal != "root" or root is None else vector("adaptive_cone", "root", root, X)
    length = float(row_norms(X).mean())
    cone = cone_of(D)
    units = cone.directions * inverse_norms(cone.lengths).to(D.dtype).unsqueeze(1)
    h = unit(opposed)
    if h is None or not (cone.lengths > 0).any():  # nothing to oppose, or no cone
        return copies(-mean, f, honest)
    if goal == "class":
        return copies(length * units[target % len(units)], f, honest)
    mix = fits(cone, -h.unsqueeze(0), torch.ones(1, device=h.device))[2]
    nearest = unit((mix.to(D.dtype) @ units)[0])
    candidates = units if nearest is None else torch.cat([units, nearest.unsqueeze(0)])
    x, reverse, *_ = fits(cone, candidates, row_norms(candidates))
    pull = (x - reverse).abs() * torch.sign(x - reverse) * (candidates @ h).double()
    return copies(length * candidates[int(pull.argmin())], f, honest)


@dataclass(frozen=True)
class AdaptiveCone:
    """Sends the direction of the class cone that most opposes the honest mean, the root update, or favours one class.

    If the rule has no directions, the reversed mean honest update is sent.

    | argument | symbol |
    |---|---|
    | goal | oppose the `honest` mean, the `root` update, or send the direction of one `class` |
    | target | the class, with `goal = "class"` |
    """

    goal: Goal = "honest"
    target: int = 0

    knowledge: ClassVar[Knowledge] = "white_box"
    init = no_state

    def __post_init__(self) -> None:
        check_choices("adaptive_cone", self)
        if self.target < 0:
            raise SettingError("adaptive_cone", "target", f"{self.target}; give the number of a class, at least 0")

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        def forge(clean: Tensor, f: int) -> Tensor:
            if view.directions is None:
                return copies(-clean.mean(0), f, clean)
            return adaptive_cone(clean, f, view.directions, view.reference, self.goal, self.target)

        return forge_from_clean(view, forge), state
