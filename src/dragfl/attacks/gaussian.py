"""Gaussian noise instead of the update, or on top of it: b ~ N(0, std^2 I), or b = g + N(0, std^2 I)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from dragfl.arrays import Array, like, matrix
from dragfl.attacks.common import replace_delta
from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice
from dragfl.types import Knowledge, NoState, RoundContext, Updates, View, no_state

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
    init = no_state

    def __post_init__(self) -> None:
        check_choice("attack gaussian", "mode", self.mode, get_args(Mode))
        if not 0.0 <= self.std < math.inf:
            raise SpecError(f"attack gaussian: std={self.std}; give a finite number of at least 0")

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        rows = [  # addressed by client, so that blocks and order cannot matter
            gaussian(g.unsqueeze(0), self.std, context.rng("attack", int(m)), self.mode)
            for g, m in zip(view.own.delta, view.own.client, strict=True)
        ]
        return replace_delta(view, torch.cat(rows)), state
