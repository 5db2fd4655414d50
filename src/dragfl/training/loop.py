"""The reference loop: plain autograd and SGD on views of one flat vector.

    direction = scale * g(w) + anchor * g(w0) + prox * (w - w0) + shift,    w <- w - lr * direction

with g the gradient of this minibatch and the other terms from the correction (1, 0, 0, none for plain SGD).
Momentum, weight decay and clipping are in `sgd.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as nnf

from dragfl.data.dataset import Dataset
from dragfl.training.augment import Batches
from dragfl.training.products import forward
from dragfl.training.sgd import LocalSGD
from dragfl.types import Affine
from dragfl.vector import FlatModel

PIECE = 125  # samples evaluated at once on a CPU: the activations of more do not fit in its cache


@dataclass(frozen=True)
class Share:
    """The training of one client in a round: rows of (x, y), a batch for every step, and the direction of the steps."""

    x: Tensor
    y: Tensor
    batches: list[NDArray[np.int64]]
    affine: Affine = Affine()  # noqa: RUF009 - it is frozen
    accumulate: bool = False  # never clear the gradient between steps, as in the authors' root training
    augment: Batches | None = None

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    def gather(self) -> tuple[Tensor, Tensor]:
        """(x, y) of the samples of all steps in order."""
        rows = torch.from_numpy(np.concatenate(self.batches)).to(self.x.device)
        x = self.x.index_select(0, rows)
        return x if self.augment is None else self.augment(x, self.sizes), self.y.index_select(0, rows)


@dataclass
class Loop:
    """Trains one client at a time, in the memory of its model."""

    group: ClassVar[int] = 1

    model: FlatModel
    dataset: Dataset
    buffers: Tensor | None = None  # initial buffers of every client, for a model with buffers
    double_softmax: bool = False  # feed soft-max outputs to the cross-entropy, as the authors' CIFAR script does
    sgd: LocalSGD = LocalSGD()  # noqa: RUF009 - it is frozen

    def inputs(self, x: Tensor) -> Tensor:
        """Convert stored rows to model inputs, in the memory format of the model."""
        inputs = self.dataset.inputs(x)
        channels_last = self.model.channels_last and inputs.ndim == 4
        return inputs.contiguous(memory_format=torch.channels_last) if channels_last else inputs

    def loss(self, x: Tensor, y: Tensor, reduction: str = "mean") -> tuple[Tensor, Tensor]:
        """(loss, logits) of stored inputs."""
        logits = self.model.module(self.inputs(x))
        return self._loss_of(logits, y, reduction), logits

    def _loss_of(self, logits: Tensor, y: Tensor, reduction: str) -> Tensor:
        return nnf.cross_entropy(logits.softmax(1) if self.double_softmax else logits, y, reduction=reduction)

    def train_group(self, w0: Tensor, shares: list[Share], lr: float, out: Tensor) -> list[float]:
        """Train every client from w0, write each update to its row of `out`, and return the mean training losses."""
        return [self.train(w0, share, lr, row) for share, row in zip(shares, out, strict=True)]

    def train(self, w0: Tensor, share: Share, lr: float, out: Tensor) -> float:
        """Train one client from w0, write w - w0 to `out` and return the mean training loss."""
        model, affine = self.model, share.affine
        model.module.train()
        model.load(w0, self.buffers)
        start = model.views(w0) if affine.prox else []
        shift = model.views(affine.shift) if affine.shift is not None else []
        xs, ys = share.gather()
        total = torch.zeros((), device=xs.device)
        accumulated: list[Tensor] = []
        momentum = self.sgd.momentum
        velocity = [torch.zeros_like(p) for p in model.parameters] if momentum else []
        for xb, yb in zip(torch.split(xs, share.sizes), torch.split(ys, share.sizes), strict=True):
            loss, grads = self._gradient(xb, yb)
            if affine.anchor:
                grads = self._anchored(grads, w0, xb, yb, affine)
            with torch.no_grad():
                total += loss
                if share.accumulate:
                    grads = [a + g for a, g in zip(accumulated, grads, strict=True)] if accumulated else grads
                    accumulated = grads
                for i, (p, g) in enumerate(zip(model.parameters, grads, strict=True)):
                    if affine.scale != 1.0 and not affine.anchor:
                        g = g * affine.scale
                    if start:
                        g = g.add(p - start[i], alpha=affine.prox)
                    if shift:
                        g = g + shift[i]
                    if momentum:
                        g = velocity[i].mul_(momentum).add_(g)
                    p.add_(g, alpha=-lr)
        torch.sub(model.w, w0, out=out)
        return float(total) / len(share.batches)

    def _gradient(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(loss, clipped gradient) of a minibatch at the current model."""
        loss, _ = self.loss(x, y)
        return loss.detach(), self.sgd.clipped(list(torch.autograd.grad(loss, self.model.parameters)))

    def _anchored(self, grads: list[Tensor], w0: Tensor, x: Tensor, y: Tensor, affine: Affine) -> list[Tensor]:
        """scale g(w) + anchor g(w0) on one minibatch; the model is restored after the gradient at w0."""
        w, b = self.model.w.clone(), self.model.b.clone()
        counts = [counter.clone() for counter, _ in self.model.counters]
        self.model.w.copy_(w0)
        _, start = self._gradient(x, y)
        self.model.w.copy_(w)
        self.model.b.copy_(b)
        for (counter, _), count in zip(self.model.counters, counts, strict=True):
            counter.copy_(count)
        return [(affine.scale * g).add_(s, alpha=affine.anchor) for g, s in zip(grads, start, strict=True)]

    def gradient(self, w: Tensor, x: Tensor, y: Tensor, rows: NDArray[np.int64], block: int) -> Tensor:
        """The mean gradient of the rows at w, with weight decay, in blocks of a size fixed by the spec."""
        model = self.model
        model.module.train()
        model.load(w, self.buffers)
        total = torch.zeros_like(w)
        for first in range(0, len(rows), block):
            index = torch.from_numpy(rows[first : first + block]).to(x.device)
            loss, _ = self.loss(x.index_select(0, index), y.index_select(0, index), reduction="sum")
            grads = torch.autograd.grad(loss, model.parameters)
            for piece, g in zip(model.views(total), grads, strict=True):  # views follow the layout of each kernel
                piece += g
        return self.sgd.mean_gradient(total, len(rows), w)

    def predict(self, w: Tensor, x: Tensor, block: int) -> Tensor:
        """(n, classes) scores of stored inputs, computed at most a block at a time."""
        size = min(block, PIECE) if x.device.type == "cpu" else block
        self.model.module.eval()
        self.model.load(w, self.buffers)
        with torch.no_grad():
            return torch.cat([forward(self.model.module, self.inputs(piece)) for piece in torch.split(x, size)])

    def score(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, float]:
        """((n,) whether each prediction is correct, summed loss) of stored inputs."""
        logits = self.predict(w, x, len(x))
        return logits.argmax(1) == y, float(self._loss_of(logits, y, "sum"))
