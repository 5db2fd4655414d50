"""A model as one flat vector: parameters are views into it, so that a model is sent, stored and stepped as a whole.

The only file that knows the names and shapes of layers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor, nn

from dragfl.errors import SpecError
from dragfl.rng import key
from dragfl.types import spans


class FlatModel:
    """A module whose trainable parameters are views into the flat float32 vector `w`.

    Writing to `w` changes the module and a step on the module changes `w`: nothing is ever copied between them.
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        _refuse_buffers(module)
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise SpecError(f"model {type(module).__name__} has no trainable parameters; give one that has")
        wrong = [(name, p.dtype) for name, p in named if p.dtype != torch.float32]
        if wrong:
            raise SpecError(f"model parameter {wrong[0][0]} is {wrong[0][1]}; dragfl trains float32 models")
        self.module = module.to(device)
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.shapes = [tuple(p.shape) for p in self.parameters]
        self.segments = (0, *accumulate(p.numel() for p in self.parameters))
        self.w = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        for p, view in zip(self.parameters, self.views(self.w), strict=True):
            p.data = view

    @property
    def dim(self) -> int:
        return self.segments[-1]

    def views(self, vector: Tensor) -> list[Tensor]:
        """A flat (d,) vector as tensors of the parameters' shapes, without a copy."""
        return [vector[a:b].view(shape) for (a, b), shape in zip(spans(self.segments), self.shapes, strict=True)]

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector as a state dict, for people."""
        return {name: view.clone() for name, view in zip(self.names, self.views(vector), strict=True)}


def _refuse_buffers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if next(layer.buffers(recurse=False), None) is not None:
            raise SpecError(
                f"model layer '{name or '(top)'}' ({type(layer).__name__}) keeps buffers, which are not part of the "
                "model vector and would not be averaged; use GroupNorm or no normalisation"
            )


def build(make: Callable[[], nn.Module], seed: int, device: str = "cpu") -> FlatModel:
    """Make a module with addressed initial weights; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, "init", bits=64) & (2**63 - 1))
        module = make()
    return FlatModel(module, device)
