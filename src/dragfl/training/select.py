"""Which trainer a model gets: by its layers alone, never by a timing, so that a spec means the same everywhere."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from dragfl.errors import SpecError
from dragfl.training.grouped_mlp import Dense, is_dense
from dragfl.training.loop import Loop, Share
from dragfl.types import Affine

Trainer = Literal["auto", "reference", "dense", "channels_last"]


class Trains(Protocol):
    @property
    def group(self) -> int:
        """Clients that are trained together, if they stand together in a block."""
        ...

    def train(
        self,
        w0: Tensor,
        x: Tensor,
        y: Tensor,
        batches: list[NDArray[np.int64]],
        lr: float,
        affine: Affine,
        out: Tensor,
        accumulate: bool = False,
    ) -> float: ...

    def train_group(self, w0: Tensor, shares: list[Share], lr: float, out: Tensor) -> list[float]: ...


def choose(asked: Trainer, module: nn.Module) -> Trainer:
    """The trainer of this module: the one asked for, if it can, or the fastest that can."""
    dense, convolves = is_dense(module), any(isinstance(part, nn.Conv2d) for part in module.modules())
    able = {"reference": True, "dense": dense, "channels_last": convolves}
    if asked == "auto":
        return "dense" if dense else "channels_last" if convolves else "reference"
    if not able[asked]:
        wants = {"dense": "a Sequential of Linear and ReLU layers", "channels_last": "convolutions"}[asked]
        raise SpecError(f"engine.trainer: '{asked}' needs {wants}; use 'auto' or 'reference'")
    return asked


def make(trainer: Trainer, loop: Loop) -> Trains:
    """The trainer itself, around the reference loop."""
    return Dense(loop) if trainer == "dense" else loop
