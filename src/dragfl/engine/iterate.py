"""The model that is evaluated after a round. It is the same choice for every algorithm.

last      theta^t, the model that the server sends out next
average   the mean of the last `window` models, theta^0 included
ema       e^t = decay e^(t-1) + (1 - decay) theta^t, from e^0 = theta^0
own       the model that the algorithm's paper evaluates; the last one where the paper has no other choice

An algorithm's own model is one of two: the average of the client models of the round, theta^(t-1) + Delta (AdaBest,
FedDyn, FedDC), or the mean of the last two models (FedExP). A skipped round changes none of them. Averaged buffers
(BatchNorm) are those of the last round in every case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from dragfl.errors import SpecError
from dragfl.types import Algorithm, OwnIterate, OwnModel


@dataclass(frozen=True)
class IterateState:
    recent: Tensor  # (k, d): the last models, or their moving average as one row


@dataclass(frozen=True)
class Iterate:
    """Which model is evaluated."""

    kind: Literal["last", "average", "ema", "own"] = "last"
    window: int = 2
    decay: float = 0.9

    def init(self, w: Tensor) -> IterateState | None:
        return IterateState(w[None].clone()) if self.kind in ("average", "ema") else None

    def update(self, state: IterateState | None, w: Tensor) -> IterateState | None:
        if state is None:
            return None
        if self.kind == "ema":
            return IterateState(self.decay * state.recent + (1.0 - self.decay) * w)
        return IterateState(torch.cat((state.recent, w[None]))[-self.window :])

    def select(self, state: IterateState | None, w: Tensor, own: Tensor | None) -> Tensor:
        """The model to evaluate."""
        if self.kind == "own":
            return w if own is None else own
        return w if state is None else state.recent.mean(0)


def own_model(algorithm: Algorithm, before: Tensor, step: Tensor, after: Tensor) -> Tensor | None:
    """The model that the algorithm's paper evaluates after a round, or None where that is the last one."""
    for part in (algorithm.correction, algorithm.aggregate):
        if not isinstance(part, OwnIterate):
            continue
        if part.own_iterate not in get_args(OwnModel):
            choices = " or ".join(map(repr, get_args(OwnModel)))
            raise SpecError(f"{type(part).__name__}.own_iterate: {part.own_iterate!r}; choose {choices}")
        return before + step if part.own_iterate == "client average" else 0.5 * (before + after)
    return None
