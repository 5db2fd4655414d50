"""A model as one flat float32 vector, of which the parameters are views.

This is the only file that knows the names and shapes of layers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor, nn

from dragfl.errors import SpecError
from dragfl.rng import key
from dragfl.types import spans

# State that is not trained, such as the running statistics of BatchNorm: refuse the model, or average the buffers of
# the clients.
Buffers = Literal["refuse", "average"]


class FlatModel:
    """A module whose trainable parameters are views into the flat float32 vector `w`.

    They share memory: writing to `w` changes the module, and a step on the module changes `w`.
    """

    def __init__(
        self, module: nn.Module, device: str = "cpu", buffers: Buffers = "refuse", channels_last: bool = False
    ) -> None:
        if buffers == "refuse":
            _refuse_buffers(module)
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise SpecError(f"model.name: {type(module).__name__} has no trainable parameters; use another model")
        wrong = [(name, p.dtype) for name, p in named if p.dtype != torch.float32]
        if wrong:
            raise SpecError(f"model.name: parameter {wrong[0][0]} is {wrong[0][1]}; convert the model to float32")
        self.module = module.to(device)
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.shapes = [tuple(p.shape) for p in self.parameters]
        kernels = {id(part.weight) for part in module.modules() if isinstance(part, nn.Conv2d)}
        self.channels_last = channels_last  # kernels are stored in the vector with channels last
        self._moved = [channels_last and id(p) in kernels for p in self.parameters]
        self.segments = (0, *accumulate(p.numel() for p in self.parameters))
        moved = zip(self.parameters, self._moved, strict=True)
        self.w = torch.cat([(p.permute(0, 2, 3, 1) if m else p).detach().reshape(-1) for p, m in moved])
        for p, view in zip(self.parameters, self.views(self.w), strict=True):
            p.data = view
        self._gather_buffers()

    def _gather_buffers(self) -> None:
        """Make float buffers views into the flat vector `b`. Integer buffers (counters) are reset for every client."""
        named = list(self.module.named_buffers())
        floats = [(name, value) for name, value in named if value.is_floating_point()]
        self.counters = [(value, value.clone()) for _, value in named if not value.is_floating_point()]
        self.buffer_names = [name for name, _ in floats]
        self.b = torch.cat([v.detach().reshape(-1).float() for _, v in floats]) if floats else self.w.new_zeros(0)
        first = 0
        for name, value in floats:
            owner, _, last = name.rpartition(".")
            setattr(self.module.get_submodule(owner), last, self.b[first : first + value.numel()].view(value.shape))
            first += value.numel()

    def load(self, w: Tensor, buffers: Tensor | None = None) -> None:
        """Load the parameters, and the buffers if there are any; reset the counters."""
        self.w.copy_(w)
        if buffers is not None:
            self.b.copy_(buffers)
        for counter, start in self.counters:
            counter.copy_(start)

    @property
    def dim(self) -> int:
        return self.segments[-1]

    def views(self, vector: Tensor) -> list[Tensor]:
        """A flat (d,) vector as tensors of the parameters' shapes, without a copy."""
        parts = zip(spans(self.segments), self.shapes, self._moved, strict=True)
        return [_kernel(vector[a:b], shape) if m else vector[a:b].view(shape) for (a, b), shape, m in parts]

    def named(self, vector: Tensor, buffers: Tensor | None = None) -> dict[str, Tensor]:
        """The module's state dict from a flat vector and flat buffers.

        Frozen parameters and integer buffers have their initial values.
        """
        module, flat = self.module, self.b if buffers is None else buffers
        own = {id(p): view for p, view in zip(self.parameters, self.views(vector), strict=True)}
        own |= {id(value): start for value, start in self.counters}
        held = dict(module.named_buffers())
        first = 0
        for name in self.buffer_names:
            own[id(held[name])] = flat[first : first + held[name].numel()].view(held[name].shape)
            first += held[name].numel()
        named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        kept = module.state_dict().keys()  # buffers that are not persistent are not in it
        whole = torch.contiguous_format
        return {n: own.get(id(v), v).detach().clone(memory_format=whole) for n, v in named if n in kept}


def _kernel(piece: Tensor, shape: tuple[int, ...]) -> Tensor:
    """View a kernel stored as (out, height, width, in) with shape (out, in, height, width)."""
    out, channels, height, width = shape
    return piece.view(out, height, width, channels).permute(0, 3, 1, 2)


def _refuse_buffers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if next(layer.buffers(recurse=False), None) is not None:
            raise SpecError(
                f"model.name: layer '{name or '(top)'}' ({type(layer).__name__}) has buffers, which are not part of "
                'the model vector; use GroupNorm or no normalisation, or set model.buffers = "average"'
            )


def init_module(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Create a module with initial weights drawn from the seed; torch's global generator is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, "init", bits=64) & (2**63 - 1))
        return make()
