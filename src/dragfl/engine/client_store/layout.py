"""The layout of one client's state: float32 fields, each a vector of the model's length or a single number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dragfl.types import Fields


@dataclass(frozen=True)
class Layout:
    shapes: Mapping[str, tuple[int, ...]]
    device: str = "cpu"

    @classmethod
    def of(cls, fields: Fields, dim: int, device: str = "cpu") -> Layout:
        return cls({name: (dim,) if kind == "vector" else () for name, kind in fields.items()}, device)

    @property
    def nbytes(self) -> int:
        """The bytes of one client's values."""
        return sum(4 * torch.Size(shape).numel() for shape in self.shapes.values())

    def zeros(self) -> dict[str, Tensor]:
        """The state of a client that was never seen."""
        return {name: torch.zeros(shape, device=self.device) for name, shape in self.shapes.items()}

    def check(self, state: Mapping[str, Tensor]) -> None:
        """Refuse what cannot be kept bit for bit."""
        if state.keys() != self.shapes.keys():
            raise ValueError(
                f"client state has fields {sorted(state)}, but the correction declares {sorted(self.shapes)}"
            )
        for name, shape in self.shapes.items():
            value = state[name]
            if tuple(value.shape) != shape or value.dtype != torch.float32:
                raise ValueError(
                    f"client state '{name}' is {value.dtype} of shape {tuple(value.shape)}; "
                    f"the correction declares it as torch.float32 of shape {shape}"
                )


def check_clients(given: list[int], clients: int) -> None:
    """Each client of a checkpoint is one of the run's, and is there once."""
    if len(set(given)) != len(given) or not all(0 <= m < clients for m in given):
        raise ValueError(f"it holds states of clients that are not {clients} different ones from 0")
