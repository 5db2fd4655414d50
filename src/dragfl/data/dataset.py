"""A dataset: preloaded tensors, and their conversion to model inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Train and test data. Images stay uint8 (n, channels, height, width) until `inputs` converts them."""

    name: str  # for labels and messages
    x: Tensor  # (n, ...) uint8, or float32 used as it is
    y: Tensor  # (n,) int64 labels in [0, classes)
    test_x: Tensor  # test inputs, as x
    test_y: Tensor  # test labels, as y
    classes: int  # number of classes
    scale: float = 255.0  # stored uint8 values divided by this lie in [0, 1]
    mean: tuple[float, ...] = ()  # per channel, after scaling; empty: no normalisation
    std: tuple[float, ...] = ()  # per channel, after scaling
    groups: Tensor | None = None  # (n,) int64: the writer, device or site of each training sample
    class_names: tuple[str, ...] = ()  # for figures and tables
    transposed: bool = False  # rows and columns are exchanged, as in EMNIST; figures and flips depend on it
    group_names: tuple[str, ...] = ()  # of the groups 0, 1, ..., for tables

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
        if self.group_names and (self.groups is None or int(self.groups.max()) >= len(self.group_names)):
            raise DataError(
                f"dataset {self.name}: {len(self.group_names)} group names, but groups "
                f"{'are missing' if self.groups is None else f'up to {int(self.groups.max())}'}; give one for each"
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

    def class_name(self, label: int) -> str:
        """The name of a class for figures and tables; its number if the dataset has no names."""
        return self.class_names[label] if self.class_names else str(label)

    def inputs(self, x: Tensor) -> Tensor:
        """Convert stored rows to float32 model inputs; the only such place, as x/255 and x*(1/255) differ in a bit."""
        if x.dtype != torch.uint8:
            return x
        out = x.float().mul_(1.0 / self.scale)
        if self.mean:
            shape = (-1,) + (1,) * (x.ndim - 2)
            out.sub_(torch.tensor(self.mean, device=x.device).reshape(shape))
            out.div_(torch.tensor(self.std, device=x.device).reshape(shape))
        return out

    def images(self, x: Tensor) -> Tensor:
        """Convert stored rows to upright images (n, height, width, channels) in [0, 1], for figures."""
        if x.ndim != 4:
            raise DataError(
                f"dataset {self.name}: inputs of shape {self.shape} are not images; "
                "figures need (channels, height, width)"
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
    """Build a dataset from arrays or tensors: labels become int64, floats float32, grey images get a channel.

    Parameters
    ----------
    x, test_x
        Inputs of the training and test samples, one row each.
    y, test_y
        Their labels, whole numbers from 0.
    name
        For labels and messages.
    classes
        Number of classes; default: the highest label plus one.
    **settings
        Further fields of `Dataset`, such as groups and class_names.

    Examples
    --------
    >>> from_tensors([[0.0], [1.0]], [0, 1], [[0.5]], [1])
    Dataset('own', 2 + 1 of (1,) float32, 2 classes)
    """

    def inputs(value: Any) -> Tensor:
        tensor = torch.as_tensor(value)
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        return tensor.unsqueeze(1) if tensor.dtype == torch.uint8 and tensor.ndim == 3 else tensor

    def integers(value: Any, what: str) -> Tensor:
        tensor = torch.as_tensor(value)
        if tensor.is_floating_point() or tensor.is_complex():
            raise DataError(f"dataset {name}: {what} are {tensor.dtype}; give whole numbers")
        return tensor.long()

    labels, test_labels = integers(y, "labels"), integers(test_y, "test labels")
    if classes is None:
        highest = [int(part.max()) for part in (labels, test_labels) if part.numel()]
        classes = 1 + max(highest, default=0)
    if settings.get("groups") is not None:
        settings["groups"] = integers(settings["groups"], "groups")
    return Dataset(name, inputs(x), labels, inputs(test_x), test_labels, classes=classes, **settings)


def as_tensors(arrays: Mapping[str, NDArray[Any]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x, y, test_x, test_y): inputs share the memory of the arrays, labels become int64."""
    x, y, test_x, test_y = (torch.from_numpy(arrays[name]) for name in ("x", "y", "test_x", "test_y"))
    return x, y.long(), test_x, test_y.long()
