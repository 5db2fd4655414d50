"""Fully connected networks without autograd: forward, backward and the SGD step written out.

For a chain of Linear and ReLU layers under cross-entropy the gradient is two matrix products a layer. Writing
`W -= lr * delta^T h` straight into the flat model saves the stored gradient, the optimiser's pass over memory and all
of autograd's bookkeeping. The numbers are those of the reference loop up to the order of float32 sums.

    h_0 = x,  z_l = h_(l-1) W_l^T + b_l,  h_l = relu(z_l)
    delta_L = (softmax(z_L) - onehot(y)) / B,  delta_(l-1) = (delta_l W_l) * [h_(l-1) > 0]
    w <- w - lr (prox (w - w0) + shift),  W_l <- W_l - lr scale delta_l^T h_(l-1)

The first layer, mostly the largest, is better still left alone. In U local steps of B samples it moves by n = U B outer
products, and its inputs, being data, are known beforehand. So the forward pass of all steps is one product with the
model sent out, what was learnt meanwhile enters through inner products of samples, and the update is one product at
the end, straight to where it is wanted:

    Z = X W0^T + b0,  K = X X^T + 1                            for all n samples at once
    z_u = Z_u - lr scale K_(u, <u) D_(<u)                      the first layer in step u; row v of D is delta_v
    W - W0 = -lr scale D^T X,  b - b0 = -lr scale D^T 1

It reads the large matrix twice instead of 3 U times, for n^2 (in + out) multiplications more: `pays` weighs the two.
A pull prox (w - w0) + shift multiplies D by 1 - lr prox in every step and adds s_u shift to what was learnt, with
s_(u+1) = (1 - lr prox) s_u - lr.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as nnf

from dragfl.training.loop import Loop
from dragfl.types import Affine

through_relu = torch.ops.aten.threshold_backward  # (error above, h = relu(z), 0): the error at z


@dataclass(frozen=True)
class Layer:
    weight: Tensor  # (out, in); a view into a flat vector
    bias: Tensor | None

    def __call__(self, h: Tensor) -> Tensor:
        return nnf.linear(h, self.weight, self.bias)


def is_dense(module: nn.Module) -> bool:
    """Whether it is Flatten, Linear, ReLU, Linear, ..., Linear, and nothing else."""
    if type(module) is not nn.Sequential:  # a subclass may compute something else
        return False
    parts = [part for part in module if not isinstance(part, nn.Identity)]
    if parts and isinstance(parts[0], nn.Flatten) and (parts[0].start_dim, parts[0].end_dim) == (1, -1):
        parts = parts[1:]
    linear = [part for part in parts[0::2] if type(part) is nn.Linear]
    between = [part for part in parts[1::2] if type(part) is nn.ReLU]
    trained = all(p.requires_grad for p in module.parameters())
    apart = len(set(linear)) == len(linear)  # no layer is used twice
    chain = len(linear) + len(between) == len(parts) and len(linear) == len(between) + 1
    return chain and trained and apart and not _hooked(module)


def _hooked(module: nn.Module) -> bool:
    """Whether somebody listens in, which only the reference loop would serve."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    heard = any(getattr(part, kind) for part in module.modules() for kind in kinds)
    return heard or any(p._backward_hooks or p._post_accumulate_grad_hooks for p in module.parameters())


def pays(samples: int, first: Layer) -> bool:
    """Whether a first layer left alone is cheaper for so many samples, of all steps together."""
    out, into = first.weight.shape
    return samples * (into + out) <= into * out


class Dense:
    """The trainer of fully connected networks; what it cannot do itself it leaves to the reference loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._layers = self._layers_in(loop.model.w)
        first = self._layers[0]
        self._rest = first.weight.numel() + (0 if first.bias is None else first.bias.numel())  # where layer 2 begins

    def _layers_in(self, vector: Tensor) -> list[Layer]:
        """The layers of a flat vector, as views."""
        linear = [part for part in self._loop.model.module.modules() if isinstance(part, nn.Linear)]
        views = iter(self._loop.model.views(vector))
        return [Layer(next(views), None if part.bias is None else next(views)) for part in linear]

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
        rows = torch.from_numpy(np.concatenate(batches)).to(x.device)
        xs = self._loop.dataset.inputs(x.index_select(0, rows)).flatten(1)
        ys = y.index_select(0, rows)
        steps = _Steps(ys, [len(batch) for batch in batches], self._layers[-1].weight.shape[0], lr, affine)
        with torch.no_grad():
            train = self._around_the_first if pays(len(xs), self._layers[0]) else self._in_place
            logits = train(w0, xs, steps, out)
            losses = nnf.cross_entropy(torch.cat(logits), ys, reduction="none")
            return float(losses @ steps.shares) / len(batches)

    def _in_place(self, w0: Tensor, x: Tensor, steps: _Steps, out: Tensor) -> list[Tensor]:
        """Every layer written in every step."""
        w = self._loop.model.w.copy_(w0)
        logits = []
        for xb, (target, share) in zip(torch.split(x, steps.sizes), steps, strict=True):
            scores, deltas, inputs = backward(self._layers, xb, target, share)
            steps.pull(w, w0)
            steps.descend(self._layers, deltas, inputs)
            logits.append(scores)
        torch.sub(w, w0, out=out)
        return logits

    def _around_the_first(self, w0: Tensor, x: Tensor, steps: _Steps, out: Tensor) -> list[Tensor]:
        """The first layer left alone, its update made of samples and their errors."""
        affine, rate, keep = steps.affine, -steps.lr * steps.affine.scale, 1.0 - steps.lr * steps.affine.prox
        first, made, later = self._layers_in(w0)[0], self._layers_in(out)[0], self._layers[1:]
        w, w_start = self._loop.model.w[self._rest :].copy_(w0[self._rest :]), w0[self._rest :]
        Z, K = first(x), x @ x.t()
        if first.bias is not None:
            K += 1.0
        D = torch.empty_like(Z)
        shift = self._layers_in(affine.shift)[0] if affine.shift is not None else None
        shifted = None if shift is None else shift(x)
        learnt, logits, a = 0.0, [], 0  # `learnt` is s_u
        for target, share in steps:
            b = a + len(target)
            z = Z[a:b]
            if a:
                z.addmm_(K[a:b, :a], D[:a], alpha=rate)
            if shifted is not None and a:
                z.add_(shifted[a:b], alpha=learnt)
            if later:
                h = z.relu_()
                scores, deltas, inputs = backward(later, h, target, share)
                through_relu.grad_input(deltas[0] @ later[0].weight, h, 0.0, grad_input=D[a:b])
                steps.pull(w, w_start, self._rest)
                steps.descend(later, deltas, inputs)
            else:
                scores = z
                D[a:b] = error(z, target, share)
            if affine.prox:
                D[:a] *= keep
            learnt = keep * learnt - steps.lr
            logits.append(scores)
            a = b
        torch.addmm(made.weight, D.t(), x, beta=0.0, alpha=rate, out=made.weight)
        if made.bias is not None:
            torch.sum(D, 0, out=made.bias).mul_(rate)
        torch.sub(w, w_start, out=out[self._rest :])
        if affine.shift is not None:
            out[: self._rest].add_(affine.shift[: self._rest], alpha=learnt)
        return logits


def error(logits: Tensor, target: Tensor, share: float) -> Tensor:
    """The gradient of the mean cross-entropy by the logits."""
    return logits.softmax(1).sub_(target).mul_(share)


def backward(layers: list[Layer], x: Tensor, target: Tensor, share: float) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """(logits, the error at each layer's output, each layer's input)."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(layer(inputs[-1]).relu_())
    logits = layers[-1](inputs[-1])
    deltas = [error(logits, target, share)]
    for layer, h in zip(layers[:0:-1], inputs[:0:-1], strict=True):
        deltas.append(through_relu(deltas[-1] @ layer.weight, h, 0.0))
    return logits, deltas[::-1], inputs


@dataclass
class _Steps:
    """The local steps of a client: (one-hot labels, 1 / batch size) of each, and how a step moves what it moves."""

    y: Tensor
    sizes: list[int]
    classes: int
    lr: float
    affine: Affine

    @property
    def shares(self) -> Tensor:
        """(n,) the weight of each sample in the mean loss of its step."""
        return torch.cat([self.y.new_full((size,), 1.0 / size, dtype=torch.float32) for size in self.sizes])

    def __iter__(self) -> Iterator[tuple[Tensor, float]]:
        targets = nnf.one_hot(self.y, self.classes).float()
        return zip(torch.split(targets, self.sizes), (1.0 / size for size in self.sizes), strict=True)

    def pull(self, w: Tensor, w0: Tensor, first: int = 0) -> None:
        """The part of the direction that needs no gradient, on all of w, which begins at `first` in the model."""
        if self.affine.prox:
            w.lerp_(w0, self.lr * self.affine.prox)  # w - lr prox (w - w0)
        if self.affine.shift is not None:
            w.add_(self.affine.shift[first:], alpha=-self.lr)

    def descend(self, layers: list[Layer], deltas: list[Tensor], inputs: list[Tensor]) -> None:
        rate = -self.lr * self.affine.scale
        for layer, delta, h in zip(layers, deltas, inputs, strict=True):
            layer.weight.addmm_(delta.t(), h, alpha=rate)
            if layer.bias is not None:
                layer.bias.add_(delta.sum(0), alpha=rate)
