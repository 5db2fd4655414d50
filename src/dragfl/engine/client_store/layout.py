"""The layout of one client's state: float32 fields, each a vector of the model's length or a single number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dragfl.errors import SpecError
from dragfl.types import Fields


@dataclass(frozen=True)
class Layout:
    """The shape of each field of a client state."""

    shapes: Mapping[str, tuple[int, ...]]
    device: str = "cpu"

    @classmethod
    def of(cls, fields: Fields, dim: int, device: str = "cpu") -> Layout:
        return cls({name: (dim,) if kind == "vector" else () for name, kind in fields.items()}, device)

    @property
    def nbytes(self) -> int:
        """Bytes of one client's state."""
        return sum(4 * torch.Size(shape).numel() for shape in self.shapes.values())

    def zeros(self) -> dict[str, Tensor]:
        """The state of a client before its first round."""
        return {name: torch.zeros(shape, device=self.device) for name, shape in self.shapes.items()}

    def check(self, values: Mapping[str, Tensor], what: str = "client state") -> None:
        """Raise SpecError unless the values have exactly these fields, as float32 tensors of these shapes."""
        if values.keys() != self.shapes.keys():
            declared = sorted(self.shapes)
            raise SpecError(f"algorithm.correction: {what} has fields {sorted(values)}, but it declares {declared}")
        for name, shape in self.shapes.items():
            value = values[name]
            if tuple(value.shape) != shape or value.dtype != torch.float32:
                raise SpecError(
                    f"algorithm.correction: {what} '{name}' is {value.dtype} of shape {tuple(value.shape)}; "
                    f"it is declared as torch.float32 of shape {shape}"
                )


def check_clients(given: list[int], clients: int) -> None:
    """Raise ValueError unless the client ids of a checkpoint are distinct and in range."""
    if len(set(given)) != len(given) or not all(0 <= m < clients for m in given):
        raise ValueError(f"the client ids of the stored states must be distinct and in 0..{clients - 1}")
