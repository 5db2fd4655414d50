"""Select the trainer of a model by its layers alone, never by a timing, so that a spec means the same everywhere."""

from __future__ import annotations

from typing import Literal

from torch import nn

from dragfl.errors import SpecError
from dragfl.training.grouped_mlp import DenseTrainer, is_dense
from dragfl.training.loop import Loop

Trainer = Literal["auto", "reference", "dense", "channels_last"]
GroupTrainer = Loop | DenseTrainer


def select_trainer(requested: Trainer, module: nn.Module) -> Trainer:
    """Return the requested trainer if it supports the module; for "auto", the fastest that does."""
    dense, convolves = is_dense(module), any(isinstance(part, nn.Conv2d) for part in module.modules())
    supported = {"reference": True, "dense": dense, "channels_last": convolves}
    if requested == "auto":
        return "dense" if dense else "channels_last" if convolves else "reference"
    if not supported[requested]:
        needs = {"dense": "a Sequential of Linear and ReLU layers", "channels_last": "convolutions"}[requested]
        raise SpecError(f"engine.trainer: '{requested}' needs {needs}; use 'auto' or 'reference'")
    return requested


def make_trainer(trainer: Trainer, loop: Loop) -> GroupTrainer:
    """Build the trainer around the reference loop."""
    return DenseTrainer(loop) if trainer == "dense" else loop
