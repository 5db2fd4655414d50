"""A dataset: preloaded tensors, and the one function that makes model inputs of stored pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dragfl.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Train and test data. Images stay uint8 (n, channels, height, width) until they are gathered."""

    name: str
    x: Tensor  # (n, ...) uint8, or float32 for data that need no scaling
    y: Tensor  # (n,) int64 labels in [0, classes)
    test_x: Tensor
    test_y: Tensor
    classes: int
    scale: float = 255.0  # a stored uint8 divided by this lies in [0, 1]
    mean: tuple[float, ...] = ()  # per channel, after scaling; empty: leave in [0, 1]
    std: tuple[float, ...] = ()
    groups: Tensor | None = None  # (n,) int64: the writer, device or site of each training sample
    class_names: tuple[str, ...] = ()  # for pictures and tables
    transposed: bool = False  # stored with rows and columns exchanged, as EMNIST is; matters for pictures only

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.x, self.y), ("test", self.test_x, self.test_y)):
            self._check(part, x, y)
        if self.x.shape[1:] != self.test_x.shape[1:]:
            raise DataError(
                f"dataset {self.name}: train inputs are {tuple(self.x.shape[1:])} and test inputs "
                f"{tuple(self.test_x.shape[1:])}; both must have one shape"
            )
        if self.groups is not None and (self.groups.dtype != torch.int64 or self.groups.shape != self.y.shape):
            raise DataError(
                f"dataset {self.name}: groups are {self.groups.dtype} of shape {tuple(self.groups.shape)}; "
                f"give one int64 for each of the {len(self.y)} training samples"
            )
        if self.class_names and len(self.class_names) != self.classes:
            raise DataError(
                f"dataset {self.name}: {len(self.class_names)} class names for {self.classes} classes; "
                "give one for each"
            )

    def _check(self, part: str, x: Tensor, y: Tensor) -> None:
        if x.dtype not in (torch.uint8, torch.float32):
            raise DataError(f"dataset {self.name}: {part} inputs are {x.dtype}; give uint8 or float32")
        if y.dtype != torch.int64 or y.ndim != 1 or len(x) != len(y):
            raise DataError(
                f"dataset {self.name}: {part} has {len(x)} inputs and labels of shape {tuple(y.shape)}, "
                f"{y.dtype}; give one int64 label for each input"
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

    def __repr__(self) -> str:
        kind = str(self.x.dtype).removeprefix("torch.")
        parts = f"{len(self.y)} + {len(self.test_y)} of {self.shape} {kind}"
        return f"Dataset({self.name!r}, {parts}, {self.classes} classes)"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x.shape[1:])

    def inputs(self, x: Tensor) -> Tensor:
        """Stored rows as float32 model inputs. Every path comes here: x/255 and x*(1/255) differ in a bit."""
        if x.dtype != torch.uint8:
            return x
        out = x.float().mul_(1.0 / self.scale)
        if self.mean:
            shape = (-1,) + (1,) * (x.ndim - 2)
            out.sub_(torch.tensor(self.mean, device=x.device).reshape(shape))
            out.div_(torch.tensor(self.std, device=x.device).reshape(shape))
        return out

    def pictures(self, x: Tensor) -> Tensor:
        """Stored rows as upright images (n, height, width, channels) in [0, 1], for people to look at."""
        if x.ndim != 4:
            raise DataError(
                f"dataset {self.name}: inputs of shape {self.shape} are no images; "
                "pictures need (channels, height, width)"
            )
        out = x.float().div(self.scale) if x.dtype == torch.uint8 else x
        return out.permute(0, 3, 2, 1) if self.transposed else out.permute(0, 2, 3, 1)


def from_tensors(
    x: Any,
    y: Any,
    test_x: Any,
    test_y: Any,
    *,
    name: str = "own",
    classes: int | None = None,
    **settings: Any,
) -> Dataset:
    """Your own arrays or tensors: labels become int64, floats float32, grey images get a channel.

    >>> from_tensors([[0.0], [1.0]], [0, 1], [[0.5]], [1])
    Dataset('own', 2 + 1 of (1,) float32, 2 classes)
    """

    def images(value: Any) -> Tensor:
        tensor = torch.as_tensor(value)
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        return tensor.unsqueeze(1) if tensor.dtype == torch.uint8 and tensor.ndim == 3 else tensor

    def whole(value: Any, what: str) -> Tensor:
        tensor = torch.as_tensor(value)
        if tensor.is_floating_point() or tensor.is_complex():
            raise DataError(f"dataset {name}: {what} are {tensor.dtype}; give whole numbers")
        return tensor.long()

    labels, test_labels = whole(y, "labels"), whole(test_y, "test labels")
    if classes is None:
        highest = [int(part.max()) for part in (labels, test_labels) if part.numel()]
        classes = 1 + max(highest, default=0)
    if settings.get("groups") is not None:
        settings["groups"] = whole(settings["groups"], "groups")
    return Dataset(name, images(x), labels, images(test_x), test_labels, classes=classes, **settings)
