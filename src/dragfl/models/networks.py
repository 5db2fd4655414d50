"""Networks by name; PyTorch's default initialisation. logistic, mlp and cnn have the shapes of the DRAG authors' code.

| name | layers | parameters |
|---|---|---|
| logistic | inputs - classes | 36,895 on EMNIST |
| mlp | inputs - hidden ReLU - classes | 416,047 on EMNIST with hidden = 500 |
| resnet | three stages of residual blocks with GroupNorm | 77,850 on CIFAR-10 with width = 16, blocks = 1 |
| resnet18 | four stages of two residual blocks with GroupNorm | 11,173,962 on CIFAR-10 |
| gru | embedding - GRU - classes | 19,308 for 44 characters with embedding = 16, hidden = 64 |
| cnn | conv 64 5x5 - pool - conv 64 5x5 - pool - 384 - 192 - classes | 797,962 on CIFAR-10 |
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dragfl.errors import SpecError
from dragfl.lazy import torch

if TYPE_CHECKING:
    from torch import nn


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def mlp(shape: tuple[int, ...], classes: int, hidden: int = 500) -> nn.Module:
    """One hidden layer of ReLU units."""
    if hidden < 1:
        raise SpecError(f"model.hidden: {hidden}; give at least 1")
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))


def cnn(shape: tuple[int, ...], classes: int, channels: int = 64) -> nn.Module:
    """Two convolutions with pooling, then three linear layers."""
    if len(shape) != 3:
        raise SpecError(f"model.name: cnn on inputs of shape {shape}; it needs images (channels, height, width)")
    if channels < 1:
        raise SpecError(f"model.channels: {channels}; give at least 1")
    height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
    if height < 1 or width < 1:
        raise SpecError(
            f"model.name: cnn: images of {shape[1]}x{shape[2]} are too small for two 5x5 convolutions; use mlp"
        )
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(shape[0], channels, 5),
        nn.MaxPool2d(2),  # before the ReLU, with which it commutes: a quarter of the values remains
        nn.ReLU(),
        nn.Conv2d(channels, channels, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(channels * height * width, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, classes),
    )


def resnet(shape: tuple[int, ...], classes: int, width: int = 16, blocks: int = 1, groups: int = 8) -> nn.Module:
    """A small residual network with GroupNorm."""
    from dragfl.models.residual import make_resnet

    return make_resnet(shape, classes, width, blocks, groups)


def resnet18(shape: tuple[int, ...], classes: int, width: int = 64, groups: int = 32) -> nn.Module:
    """ResNet-18 with GroupNorm."""
    from dragfl.models.residual import make_resnet18

    return make_resnet18(shape, classes, width, groups)


def gru(shape: tuple[int, ...], classes: int, embedding: int = 16, hidden: int = 64, layers: int = 1) -> nn.Module:
    """A character-level GRU that predicts the next character."""
    from dragfl.models.recurrent import make_gru

    return make_gru(shape, classes, embedding, hidden, layers)
