"""Updates with NaN or an infinity in one coordinate or in all. Every rule must drop them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from dragfl.arrays import Array, like, matrix
from dragfl.attacks.common import replace_delta
from dragfl.schedules import check_choice
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
        check_choice("attack non_finite", "value", self.value, get_args(Value))
        check_choice("attack non_finite", "coordinates", self.coordinates, get_args(Coordinates))

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return replace_delta(view, non_finite(view.own.delta, self.value, self.coordinates)), state
