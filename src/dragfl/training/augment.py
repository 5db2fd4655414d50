"""Augmentation of minibatches: a function `(x, rng) -> x` of stored inputs, before they become model inputs.

Draws are addressed by (seed, "augment", round, client), so neither workers nor an interruption change them. Labels stay
as they are. Images are (n, channels, height, width), uint8 or float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dragfl.errors import PartError, SpecError
from dragfl.lazy import Tensor, torch
from dragfl.own_code import check_finite, name_of, named_errors
from dragfl.rng import rng
from dragfl.types import RoundContext

if TYPE_CHECKING:
    from dragfl.data.dataset import Dataset

Augment = Callable[[Tensor, np.random.Generator], Tensor]
Batches = Callable[[Tensor, Sequence[int]], Tensor]  # the inputs of all steps and the batch sizes -> augmented inputs


@dataclass(frozen=True)
class Flip:
    """Mirrors each image left to right with probability 1/2."""

    axis: int = -1  # the stored axis that is horizontal for the viewer

    def for_data(self, dataset: Dataset) -> Flip:
        _check_images("flip", dataset)
        return replace(self, axis=-2 if dataset.transposed else -1)

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        mirrored = torch.from_numpy(rng.random(len(x)) < 0.5).to(x.device)
        return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(self.axis), x)


@dataclass(frozen=True)
class Crop:
    """Shifts each image by up to `pad` pixels in both directions: a random crop after padding with zeros."""

    pad: int = 4

    def for_data(self, dataset: Dataset) -> Crop:
        _check_images("crop", dataset)
        return self

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        n, channels, height, width = x.shape
        corner = torch.from_numpy(rng.integers(0, 2 * self.pad + 1, (2, n, 1))).to(x.device)
        rows = (corner[0] + torch.arange(height, device=x.device)).view(n, 1, height, 1)
        columns = (corner[1] + torch.arange(width, device=x.device)).view(n, 1, 1, width)
        image = torch.arange(n, device=x.device).view(n, 1, 1, 1)
        channel = torch.arange(channels, device=x.device).view(1, channels, 1, 1)
        return torch.nn.functional.pad(x, (self.pad,) * 4)[image, channel, rows, columns]


@dataclass(frozen=True)
class Chain:
    """Several augmentations, one after the other."""

    parts: tuple[Augment, ...]

    def for_data(self, dataset: Dataset) -> Chain:
        return Chain(tuple(part.for_data(dataset) if hasattr(part, "for_data") else part for part in self.parts))

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        for part in self.parts:
            x = checked(part, x, rng)
        return x


AUGMENTATIONS: dict[str, Augment] = {"flip": Flip(), "crop": Crop()}


def fit(augment: Any, dataset: Dataset) -> Augment:
    """The augmentation for this dataset, tried on two samples: a wrong one is reported before the first round."""
    fitted: Augment = augment.for_data(dataset) if hasattr(augment, "for_data") else augment
    checked(fitted, dataset.x[:2].clone(), rng(0, "augment"))
    return fitted


def augment_batches(
    augment: Augment, context: RoundContext, client: int | str, x: Tensor, sizes: Sequence[int]
) -> Tensor:
    """The inputs of all steps of a client's round, augmented one minibatch after the other."""
    draws = context.rng("augment", client)
    return torch.cat([checked(augment, batch, draws) for batch in torch.split(x, list(sizes))])


def checked(augment: Augment, x: Tensor, rng: np.random.Generator) -> Tensor:
    """The augmented minibatch; what a function of the user does wrong is an error with its name."""
    if isinstance(augment, Flip | Crop | Chain):
        return augment(x, rng)
    name = f"clients.augment: {name_of(augment)}"
    given = _described(x)
    with named_errors(name):
        out: Any = augment(x, rng)
    if not isinstance(out, torch.Tensor):
        raise PartError(f"{name} returned a {type(out).__name__}; return the augmented tensor")
    if _described(out) != given:
        raise PartError(f"{name} returned {_described(out)} for {given}; return the same shape, dtype and device")
    if out.is_floating_point():
        check_finite(f"{name}: its result", out)
    return out


def _described(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)} on {x.device}"


def _check_images(name: str, dataset: Dataset) -> None:
    if len(dataset.shape) != 3:
        raise SpecError(
            f"clients.augment: {name} needs images (channels, height, width), and {dataset.name} has inputs of shape "
            f'{dataset.shape}; use "none" or a function of your own'
        )
