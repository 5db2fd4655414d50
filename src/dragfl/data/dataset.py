"""A dataset: preloaded tensors, indexed in place, and the one function that turns stored pixels into model inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dragfl.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Dataset:
    """Train and test data. Images are kept as uint8 (n, channels, height, width) and normalised when gathered."""

    name: str
    x: Tensor  # (n, ...) uint8, or float32 for data that need no scaling
    y: Tensor  # (n,) int64 labels in [0, classes)
    test_x: Tensor
    test_y: Tensor
    classes: int
    scale: float = 255.0  # a stored uint8 divided by this lies in [0, 1]
    mean: tuple[float, ...] = ()  # per channel, after scaling; empty: leave in [0, 1]
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.x, self.y), ("test", self.test_x, self.test_y)):
            if x.dtype not in (torch.uint8, torch.float32):
                raise DataError(f"dataset {self.name}: {part} inputs are {x.dtype}; give uint8 or float32")
            if y.dtype != torch.int64 or y.ndim != 1 or len(x) != len(y):
                raise DataError(
                    f"dataset {self.name}: {part} has {len(x)} inputs and labels of shape {tuple(y.shape)}, {y.dtype}; "
                    "give one int64 label for each input"
                )
            if len(y) == 0:
                raise DataError(f"dataset {self.name}: the {part} part is empty; give at least one sample")
            if int(y.min()) < 0 or int(y.max()) >= self.classes:
                raise DataError(
                    f"dataset {self.name}: {part} labels run from {int(y.min())} to {int(y.max())} "
                    f"but there are {self.classes} classes; number the labels from 0"
                )
            if x.dtype == torch.float32 and not torch.isfinite(x).all():
                raise DataError(f"dataset {self.name}: {part} inputs hold a NaN or an infinity; clean the data first")
        if self.x.shape[1:] != self.test_x.shape[1:]:
            raise DataError(
                f"dataset {self.name}: train inputs are {tuple(self.x.shape[1:])} and test inputs "
                f"{tuple(self.test_x.shape[1:])}; both must have one shape"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    def inputs(self, x: Tensor) -> Tensor:
        """Stored rows as float32 model inputs. Every path normalises here: x/255 and x*(1/255) differ in a bit."""
        if x.dtype != torch.uint8:
            return x
        out = x.float().mul_(1.0 / self.scale)
        if self.mean:
            shape = (-1,) + (1,) * (x.ndim - 2)
            out.sub_(torch.tensor(self.mean, device=x.device).reshape(shape))
            out.div_(torch.tensor(self.std, device=x.device).reshape(shape))
        return out
