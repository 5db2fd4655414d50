"""Multi-layer perceptrons without autograd: explicit forward pass, backward pass and SGD step.

For a chain of Linear and ReLU layers with cross-entropy loss the gradient is two matrix products per layer. Adding
`-lr * delta^T h` directly to the flat model avoids stored gradients, the optimiser's pass over memory and the overhead
of autograd. Results equal those of the reference loop up to the order of float32 sums.

    h_0 = x,  z_l = h_(l-1) W_l^T + b_l,  h_l = relu(z_l)
    delta_L = (softmax(z_L) - onehot(y)) / B,  delta_(l-1) = (delta_l W_l) * [h_(l-1) > 0]
    w <- w - lr (prox (w - w0) + shift),  W_l <- W_l - lr scale delta_l^T h_(l-1)

The update of the first layer, usually the largest, can be deferred to the end. In U local steps of B samples it is a
sum of n = U B outer products, and its inputs are data, known beforehand. The forward pass of all steps is then one
product with the model sent out, the changes of earlier steps enter through inner products of samples, and the update is
one product at the end, written directly to the output:

    Z = X W0^T + b0,  K = X X^T + 1                            for all n samples at once
    z_u = Z_u - lr scale K_(u, <u) D_(<u)                      the first layer in step u; row v of D is delta_v
    W - W0 = -lr scale D^T X,  b - b0 = -lr scale D^T 1

This reads the large matrix twice instead of 3 U times, at the cost of n^2 (in + out) more multiplications;
`deferring_pays` compares the two. A term prox (w - w0) + shift multiplies D by 1 - lr prox in every step and adds
s_u shift to the change, with s_(u+1) = (1 - lr prox) s_u - lr.

A term anchor g(w0) needs the errors at the model sent out. They do not depend on earlier steps, so one pass gives those
of all steps, E, and D + (anchor / scale) E takes the place of D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as nnf

from dragfl.training.loop import Loop, Share
from dragfl.training.products import add_outer_products, linear
from dragfl.types import Affine, spans

through_relu = torch.ops.aten.threshold_backward  # (error above, h = relu(z), 0): the error at z


class Layer(NamedTuple):
    """Views into a flat vector; with a leading axis, of g clients at once."""

    weight: Tensor  # (out, in)
    bias: Tensor | None  # (out,)

    def __call__(self, h: Tensor) -> Tensor:
        if self.weight.ndim == 2:
            return linear(h, self.weight, self.bias)
        if self.bias is None:
            return torch.bmm(h, self.weight.mT)
        return torch.baddbmm(self.bias.unsqueeze(1), h, self.weight.mT)

    @property
    def parts(self) -> list[Tensor]:
        return [part for part in self if part is not None]

    def copies(self, clients: int) -> Layer:
        """A separate copy for every client."""
        copies = [part.expand(clients, *part.shape).clone() for part in self.parts]
        return Layer(copies[0], copies[1] if self.bias is not None else None)


def is_dense(module: nn.Module) -> bool:
    """Whether the module is exactly [Flatten,] Linear, ReLU, Linear, ..., Linear."""
    if type(module) is not nn.Sequential:  # a subclass may compute something else
        return False
    parts = [part for part in module if not isinstance(part, nn.Identity)]
    if parts and isinstance(parts[0], nn.Flatten) and (parts[0].start_dim, parts[0].end_dim) == (1, -1):
        parts = parts[1:]
    linear = [part for part in parts[0::2] if type(part) is nn.Linear]
    between = [part for part in parts[1::2] if type(part) is nn.ReLU]
    trained = all(p.requires_grad for p in module.parameters())
    distinct = len(set(linear)) == len(linear)  # no layer is used twice
    chain = len(linear) + len(between) == len(parts) and len(linear) == len(between) + 1
    return chain and trained and distinct and not _has_hooks(module)


def _has_hooks(module: nn.Module) -> bool:
    """Whether the module or a parameter has hooks, which only the reference loop runs."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    on_modules = any(getattr(part, kind) for part in module.modules() for kind in kinds)
    return on_modules or any(p._backward_hooks or p._post_accumulate_grad_hooks for p in module.parameters())


def deferring_pays(samples: int, first: Layer) -> bool:
    """Whether deferring the first layer's update is cheaper, for this number of samples in all steps."""
    out, into = first.weight.shape
    return samples * (into + out) <= into * out


class DenseTrainer:
    """The trainer of multi-layer perceptrons; unsupported options fall back to the reference loop.

    Clients that differ only in their data are trained together, `group` at a time: the matrices are so small that the
    overhead of a call is comparable to its arithmetic.
    """

    group = 5

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._biased = [part.bias is not None for part in loop.model.module.modules() if isinstance(part, nn.Linear)]
        self._layers = self._layers_in(loop.model.w)
        self._classes = self._layers[-1].weight.shape[0]

    def _layers_in(self, vectors: Tensor) -> list[Layer]:
        """The layers of a flat vector, or of several at once (g, d), as views."""
        model, lead = self._loop.model, vectors.shape[:-1]
        parts = zip(spans(model.segments), model.shapes, strict=True)
        views = (vectors[..., a:b].view(*lead, *shape) for (a, b), shape in parts)
        return [Layer(next(views), next(views) if biased else None) for biased in self._biased]

    def train_group(self, w0: Tensor, shares: list[Share], lr: float, out: Tensor) -> list[float]:
        """As `Loop.train_group`."""
        head = shares[0]
        unscaled = head.affine.anchor != 0.0 and head.affine.scale == 0.0
        if unscaled or head.accumulate or self._loop.double_softmax or self._loop.sgd.needs_gradient:
            return self._loop.train_group(w0, shares, lr, out)
        deferred = deferring_pays(sum(head.sizes), self._layers[0])
        if len(shares) > 1 and not (deferred and all(_compatible(head, share) for share in shares[1:])):
            return [self.train_group(w0, [s], lr, row.unsqueeze(0))[0] for s, row in zip(shares, out, strict=True)]
        x, y = (torch.stack(part) for part in zip(*(share.gather() for share in shares), strict=True))
        inputs = self._loop.dataset.inputs(x.flatten(0, 1)).view(*y.shape, -1)
        steps = _Steps(nnf.one_hot(y, self._classes).float(), head.sizes, lr, head.affine, _shifts(shares))
        with torch.no_grad():
            logits = (self._defer_first_layer if deferred else self._train_in_place)(w0, inputs, steps, out)
            losses = nnf.cross_entropy(torch.cat(logits, 1).flatten(0, 1), y.flatten(), reduction="none")
            shares_of_loss = steps.weights.double() / len(head.sizes)
            return [float(row.double() @ shares_of_loss) for row in losses.view_as(y)]

    def gradient(self, w: Tensor, x: Tensor, y: Tensor, rows: NDArray[np.int64], block: int) -> Tensor:
        """As `Loop.gradient`."""
        if self._loop.double_softmax:
            return self._loop.gradient(w, x, y, rows, block)
        total = torch.zeros_like(w)
        layers, sums = self._layers_in(w), self._layers_in(total)
        with torch.no_grad():
            for index in torch.split(torch.from_numpy(rows).to(x.device), block):
                inputs = self._loop.dataset.inputs(x.index_select(0, index)).flatten(1)
                target = nnf.one_hot(y.index_select(0, index), self._classes).float()
                _, deltas, entered = backward(layers, inputs, target, 1.0)
                descend(sums, deltas, entered, 1.0)
            return self._loop.sgd.mean_gradient(total, len(rows), w)

    def _train_in_place(self, w0: Tensor, x: Tensor, steps: _Steps, out: Tensor) -> list[Tensor]:
        """Update every layer in every step, for one client: several clients would not fit into the cache."""
        w, shift = self._loop.model.w.copy_(w0), [] if steps.shift is None else [steps.shift[0]]
        anchor, start = -steps.lr * steps.affine.anchor, self._layers_in(w0)
        logits = []
        for xb, (target, share) in zip(torch.split(x[0], steps.sizes), steps, strict=True):
            scores, deltas, inputs = backward(self._layers, xb, target[0], share)
            steps.pull([w], [w0], shift)
            descend(self._layers, deltas, inputs, -steps.lr * steps.affine.scale)
            if anchor:
                _, deltas, inputs = backward(start, xb, target[0], share)
                descend(self._layers, deltas, inputs, anchor)
            logits.append(scores.unsqueeze(0))
        torch.sub(w, w0, out=out[0])
        return logits

    def _defer_first_layer(self, w0: Tensor, x: Tensor, steps: _Steps, out: Tensor) -> list[Tensor]:
        """Compute the first layer's update at the end, from all samples and their errors."""
        affine, rate, keep = steps.affine, -steps.lr * steps.affine.scale, 1.0 - steps.lr * steps.affine.prox
        (first, *start), made = self._layers_in(w0), self._layers_in(out)
        later = [layer.copies(len(x)) for layer in start]
        shift = [] if steps.shift is None else self._layers_in(steps.shift)
        weights, origins, pulls = _parts(later), _parts(start), _parts(shift[1:])
        Z, K = first(x), torch.stack([linear(samples, samples) for samples in x])
        if first.bias is not None:
            K += 1.0
        D = torch.empty_like(Z)
        at_start = _errors_at_start(start, Z, steps) if affine.anchor else None
        shifted = shift[0](x) if shift else None
        shift_factor, logits, a = 0.0, [], 0  # `shift_factor` is s_u
        for target, share in steps:
            b = a + target.shape[1]
            z = torch.baddbmm(Z[:, a:b], K[:, a:b, :a], D[:, :a], alpha=rate) if a else Z[:, a:b].contiguous()
            if shifted is not None:
                z.add_(shifted[:, a:b], alpha=shift_factor)
            if later:
                h = z.relu_()
                scores, deltas, inputs = backward(later, h, target, share)
                through_relu.grad_input(torch.bmm(deltas[0], later[0].weight), h, 0.0, grad_input=D[:, a:b])
                steps.pull(weights, origins, pulls)
                descend(later, deltas, inputs, rate)
                if at_start is not None:
                    deltas, inputs = ([part[:, a:b] for part in parts] for parts in at_start[1:])
                    descend(later, deltas, inputs, -steps.lr * affine.anchor)
            else:
                scores = z
                D[:, a:b] = error(z, target, share)
            if at_start is not None:
                D[:, a:b].add_(at_start[0][:, a:b], alpha=affine.anchor / affine.scale)
            if affine.prox:
                D[:, :a] *= keep
            shift_factor = keep * shift_factor - steps.lr
            logits.append(scores)
            a = b
        D *= rate
        for samples, errors, change in zip(x, D, made[0].weight, strict=True):
            change.copy_(linear(errors.mT, samples.mT))
        if made[0].bias is not None:
            torch.sum(D, 1, out=made[0].bias)
        for part, pull in zip(made[0].parts, shift[0].parts if shift else [], strict=bool(shift)):
            part.add_(pull, alpha=shift_factor)
        for change, mine, theirs in zip(_parts(made[1:]), weights, origins, strict=True):
            torch.sub(mine, theirs, out=change)
        return logits


def _errors_at_start(start: list[Layer], Z: Tensor, steps: _Steps) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """(E, the errors at the outputs of the later layers, their inputs) at the model sent out, of all samples."""
    shares = steps.weights.unsqueeze(1)
    if not start:
        return error(Z, steps.targets, shares), [], []
    h = Z.relu()
    _, deltas, inputs = backward(start, h, steps.targets, shares)
    return through_relu(deltas[0] @ start[0].weight, h, 0.0), deltas, inputs


def error(logits: Tensor, target: Tensor, share: float | Tensor) -> Tensor:
    """The gradient of the mean cross-entropy with respect to the logits."""
    return logits.softmax(-1).sub_(target).mul_(share)


def backward(
    layers: list[Layer], x: Tensor, target: Tensor, share: float | Tensor
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """(logits, the error at each layer's output, each layer's input)."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(layer(inputs[-1]).relu_())
    logits = layers[-1](inputs[-1])
    deltas = [error(logits, target, share)]
    for layer, h in zip(layers[:0:-1], inputs[:0:-1], strict=True):
        deltas.append(through_relu(deltas[-1] @ layer.weight, h, 0.0))
    return logits, deltas[::-1], inputs


def descend(layers: list[Layer], deltas: list[Tensor], inputs: list[Tensor], rate: float) -> None:
    """Add `rate` times the gradient of each layer: delta^T h, and the sum of delta for the bias."""
    for layer, delta, h in zip(layers, deltas, inputs, strict=True):
        if layer.weight.ndim == 2:
            add_outer_products(layer.weight, delta, h, rate)
        else:
            layer.weight.baddbmm_(delta.mT, h, alpha=rate)
        if layer.bias is not None:
            layer.bias.add_(delta.sum(-2), alpha=rate)


def _parts(layers: list[Layer]) -> list[Tensor]:
    return [part for layer in layers for part in layer.parts]


def _compatible(one: Share, other: Share) -> bool:
    """Whether two clients differ only in their data and shift."""
    a, b = one.affine, other.affine
    return (
        one.sizes == other.sizes
        and (a.scale, a.prox, a.anchor, a.shift is None) == (b.scale, b.prox, b.anchor, b.shift is None)
        and (one.x.dtype, one.x.shape[1:]) == (other.x.dtype, other.x.shape[1:])
    )


def _shifts(shares: list[Share]) -> Tensor | None:
    """(g, d) shift of each client; a vector shared by all is not copied."""
    found = [share.affine.shift for share in shares if share.affine.shift is not None]
    if not found:
        return None
    same = all(shift is found[0] for shift in found)
    return found[0].expand(len(found), -1) if same else torch.stack(found)


@dataclass
class _Steps:
    """The local steps of g clients: iterates over (one-hot labels, 1 / batch size)."""

    targets: Tensor  # (g, n, classes)
    sizes: list[int]
    lr: float
    affine: Affine
    shift: Tensor | None  # (g, d)

    @property
    def weights(self) -> Tensor:
        """(n,) the weight of each sample in the mean loss of its step."""
        return torch.cat([self.targets.new_full((size,), 1.0 / size) for size in self.sizes])

    def __iter__(self) -> Iterator[tuple[Tensor, float]]:
        targets = torch.split(self.targets, self.sizes, dim=-2)
        return zip(targets, (1.0 / size for size in self.sizes), strict=True)

    def pull(self, weights: list[Tensor], origins: list[Tensor], shifts: list[Tensor]) -> None:
        """Apply the terms of the direction that need no gradient."""
        if self.affine.prox:
            for w, w0 in zip(weights, origins, strict=True):
                w.lerp_(w0.expand_as(w), self.lr * self.affine.prox)  # w - lr prox (w - w0)
        for w, shift in zip(weights, shifts, strict=False):
            w.add_(shift, alpha=-self.lr)
