"""Fully connected networks without autograd: forward, backward and the SGD step written out, in place.

For a chain of Linear and ReLU layers under cross-entropy the gradient is two matrix products a layer. Writing
`W -= lr * delta^T h` straight into the flat model saves the stored gradient, the optimiser's pass over memory and all
of autograd's bookkeeping. The numbers are those of the reference loop up to the order of float32 sums.

    h_0 = x,  z_l = h_(l-1) W_l^T + b_l,  h_l = relu(z_l)
    delta_L = (softmax(z_L) - onehot(y)) / B,  delta_(l-1) = (delta_l W_l) * [h_(l-1) > 0]
    w <- w - lr (prox (w - w0) + shift),  W_l <- W_l - lr scale delta_l^T h_(l-1)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as nnf

from dragfl.training.loop import Loop
from dragfl.types import Affine


@dataclass(frozen=True)
class Layer:
    weight: Tensor  # views into the model's flat vector
    bias: Tensor | None


def layers_of(module: nn.Module) -> list[Layer] | None:
    """The layers of Flatten, Linear, ReLU, Linear, ..., Linear; None for any other module."""
    if type(module) is not nn.Sequential:  # a subclass may compute something else
        return None
    parts = [part for part in module if not isinstance(part, nn.Identity)]
    if parts and isinstance(parts[0], nn.Flatten) and (parts[0].start_dim, parts[0].end_dim) == (1, -1):
        parts = parts[1:]
    linear = [part for part in parts[0::2] if type(part) is nn.Linear]
    between = [part for part in parts[1::2] if type(part) is nn.ReLU]
    trained = all(p.requires_grad for p in module.parameters())
    if len(linear) + len(between) != len(parts) or len(linear) != len(between) + 1 or not trained or _hooked(module):
        return None
    return [Layer(part.weight.data, None if part.bias is None else part.bias.data) for part in linear]


def _hooked(module: nn.Module) -> bool:
    """Whether somebody listens in, which only the reference loop would serve."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    heard = any(getattr(part, kind) for part in module.modules() for kind in kinds)
    return heard or any(p._backward_hooks or p._post_accumulate_grad_hooks for p in module.parameters())


class Dense:
    """The trainer of fully connected networks; what it cannot do itself it leaves to the reference loop."""

    def __init__(self, loop: Loop, layers: list[Layer]) -> None:
        self._loop, self._layers = loop, layers

    def train(
        self,
        w0: Tensor,
        x: Tensor,
        y: Tensor,
        batches: list[NDArray[np.int64]],
        lr: float,
        affine: Affine,
        out: Tensor,
        accumulate: bool = False,
    ) -> float:
        """As `Loop.train`."""
        if accumulate or affine.anchor or self._loop.double_softmax:
            return self._loop.train(w0, x, y, batches, lr, affine, out, accumulate)
        model = self._loop.model
        model.load(w0)
        rows = torch.from_numpy(np.concatenate(batches)).to(x.device)
        xs = self._loop.dataset.inputs(x[rows]).flatten(1)
        ys = y[rows]
        sizes = [len(batch) for batch in batches]
        total = torch.zeros((), device=x.device)
        with torch.no_grad():
            for xb, yb in zip(torch.split(xs, sizes), torch.split(ys, sizes), strict=True):
                total += self._step(xb, yb, w0, lr, affine)
            torch.sub(model.w, w0, out=out)
        return float(total) / len(batches)

    def _step(self, x: Tensor, y: Tensor, w0: Tensor, lr: float, affine: Affine) -> Tensor:
        """One SGD step in place; the loss before it."""
        inputs = [x]
        for i, layer in enumerate(self._layers):
            z = nnf.linear(inputs[-1], layer.weight, layer.bias)
            inputs.append(z.relu_() if i + 1 < len(self._layers) else z)
        log_p = nnf.log_softmax(inputs.pop(), dim=1)
        loss = nnf.nll_loss(log_p, y)
        share = 1.0 / len(y)
        delta = log_p.exp_().mul_(share)
        delta.scatter_add_(1, y.unsqueeze(1), delta.new_full((len(y), 1), -share))
        deltas = [delta]
        for layer, h in zip(self._layers[:0:-1], inputs[:0:-1], strict=True):
            delta = (delta @ layer.weight).mul_(h > 0)
            deltas.append(delta)
        self._pull(w0, lr, affine)
        for layer, h, delta in zip(self._layers, inputs, reversed(deltas), strict=True):
            layer.weight.addmm_(delta.t(), h, alpha=-lr * affine.scale)
            if layer.bias is not None:
                layer.bias.add_(delta.sum(0), alpha=-lr * affine.scale)
        return loss

    def _pull(self, w0: Tensor, lr: float, affine: Affine) -> None:
        """The part of the direction that needs no gradient, on the whole model at once."""
        w = self._loop.model.w
        if affine.prox:
            w.lerp_(w0, lr * affine.prox)  # w - lr prox (w - w0)
        if affine.shift is not None:
            w.add_(affine.shift, alpha=-lr)
