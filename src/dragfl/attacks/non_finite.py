"""Updates with NaN or an infinity in one or all coordinates. The server drops them before any rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from dragfl.arrays import Array, like, matrix
from dragfl.schedules import check_choice, check_choices
from dragfl.types import Knowledge, NoState, RoundContext, Updates, View, no_state

Value = Literal["nan", "inf", "-inf"]
Coordinates = Literal["all", "one"]


def non_finite(own: Array, value: Value = "nan", coordinates: Coordinates = "all") -> Array:
    """The clean updates (f, d) with every coordinate, or only the middle one, set to NaN or an infinity."""
    check_choice("non_finite", "value", value, get_args(Value))
    check_choice("non_finite", "coordinates", coordinates, get_args(Coordinates))
    X = matrix("non_finite", own).clone()
    X[:, slice(None) if coordinates == "all" else X.shape[1] // 2] = float(value)
    return like(X, own)


@dataclass(frozen=True)
class NonFinite:
    """Sends NaN or an infinity.

    | argument | symbol |
    |---|---|
    | value | `nan`, `inf` or `-inf` |
    | coordinates | in `all` coordinates, or in `one` |
    """

    value: Value = "nan"
    coordinates: Coordinates = "all"

    knowledge: ClassVar[Knowledge] = "own"
    init = no_state

    def __post_init__(self) -> None:
        check_choices("non_finite", self)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return replace(view.own, delta=non_finite(view.own.delta, self.value, self.coordinates)), state
