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
    dense, convolutions = is_dense(module), [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    convolves = bool(convolutions) and not any(map(_unsafe, convolutions))
    supported = {"reference": True, "dense": dense, "channels_last": convolves}
    if requested == "auto":
        return "dense" if dense else "channels_last" if convolves else "reference"
    if not supported[requested]:
        needs = {
            "dense": "a Sequential of Linear and ReLU layers",
            "channels_last": "convolutions, and at least 8 channels in those of 1x1 with a stride",
        }[requested]
        raise SpecError(f"engine.trainer: '{requested}' needs {needs}; use 'auto' or 'reference'")
    return requested


def _unsafe(part: nn.Conv2d) -> bool:
    """Whether oneDNN corrupts memory in the channels-last gradient: strided 1x1, fewer than 8 channels (torch 2.x)."""
    narrow = min(part.in_channels, part.out_channels) < 8
    return narrow and tuple(part.kernel_size) == (1, 1) and tuple(part.stride) != (1, 1)


def make_trainer(trainer: Trainer, loop: Loop) -> GroupTrainer:
    """Build the trainer around the reference loop."""
    return DenseTrainer(loop) if trainer == "dense" else loop
