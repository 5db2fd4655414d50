"""Gaussian noise instead of the update, or on top of it: b ~ N(0, std^2 I), or b = g + N(0, std^2 I)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dragfl.arrays import Array, like, matrix
from dragfl.attacks.common import check_at_least, forge_rows
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choices
from dragfl.types import Knowledge, NoState, RoundContext, Strength, Updates, View, no_state

Mode = Literal["replace", "add"]


def normal(X: Tensor, rng: np.random.Generator) -> Tensor:
    """Standard normal numbers in the shape and dtype of X."""
    return torch.from_numpy(rng.standard_normal(tuple(X.shape))).to(X)


def gaussian(own: Array, std: float, rng: np.random.Generator, mode: Mode = "replace") -> Array:
    """Noise of standard deviation `std` instead of each clean update (f, d), or added to it."""
    X = matrix("gaussian", own)
    noise = std * normal(X, rng)
    return like(noise if mode == "replace" else X + noise, own)


@dataclass(frozen=True)
class Gaussian:
    """Sends random noise instead of the update, or adds noise to it.

    | argument | symbol |
    |---|---|
    | std | standard deviation of each coordinate |
    | mode | `replace` the update or `add` to it |
    """

    std: float = 1.0
    mode: Mode = "replace"

    knowledge: ClassVar[Knowledge] = "own"
    strength: ClassVar[Strength] = ("std", 0.01, 10.0)
    init = no_state

    def __post_init__(self) -> None:
        check_choices("gaussian", self)
        check_at_least(0, "gaussian", std=self.std)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return forge_rows(view, context, lambda g, rng: gaussian(g, self.std, rng, self.mode)), state
