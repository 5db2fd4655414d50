"""Random scaling, the attack of the DRAG paper: b_m = p_m g_m with p_m ~ N(0, variance), fresh each round.

A negative p reverses the update, a large one inflates it. The paper's text says variance 3 and one p for a client and
round; the authors' code draws with standard deviation 3 and one p for each parameter tensor: `std` and `per_tensor`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.arrays import Array, like, matrix
from dragfl.attacks.common import check_at_least, check_positive, forge_rows
from dragfl.lazy import torch
from dragfl.types import Knowledge, NoState, RoundContext, Strength, Updates, View, no_state, spans


def random_scaling(
    own: Array, variance: float, rng: np.random.Generator, segments: tuple[int, ...] | None = None
) -> Array:
    """Each row of the clean updates (f, d) times its own p ~ N(0, variance); with `segments` a p for each tensor."""
    X = matrix("random_scaling", own)
    pieces = spans(segments or (0, X.shape[1]))
    p = torch.from_numpy(rng.normal(0.0, math.sqrt(variance), (len(X), len(pieces)))).to(X)
    widths = torch.tensor([b - a for a, b in pieces], device=X.device)
    return like(X * (p if len(pieces) == 1 else p.repeat_interleave(widths, dim=1)), own)


def backdoor_scale(own: Array, scale: float) -> Array:
    """scale * own: model replacement, for updates (f, d) trained on poisoned data.

    E. Bagdasaryan et al., How to Backdoor Federated Learning, AISTATS 2020: with scale = clients per round / server lr
    one attacker replaces the model, if the honest updates are small.
    """
    check_positive("backdoor", scale=scale)
    return like(scale * matrix("backdoor_scale", own), own)


@dataclass(frozen=True)
class RandomScaling:
    """Sends the update times a random number.

    | argument | symbol |
    |---|---|
    | variance | variance of p |
    | std | standard deviation of p, instead of the variance |
    | per_tensor | one p for each parameter tensor, as in the authors' code |
    """

    variance: float = 3.0
    std: float | None = None
    per_tensor: bool = False
    knowledge: ClassVar[Knowledge] = "own"
    init = no_state

    def __post_init__(self) -> None:
        check_at_least(0, "random_scaling", variance=self.variance, std=self.std or 0.0)

    @property
    def strength(self) -> Strength:
        """The setting to tune: the variance, or the standard deviation if that is given instead."""
        return ("variance", 0.3, 300.0) if self.std is None else ("std", 0.5, 16.0)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        variance = self.variance if self.std is None else self.std**2
        segments = view.info.segments if self.per_tensor and view.info is not None else None
        return forge_rows(view, context, lambda g, rng: random_scaling(g, variance, rng, segments)), state
