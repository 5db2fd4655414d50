"""The optimiser of local training: SGD with momentum, weight decay and gradient clipping.

    g   <- g min(1, clip_norm / |g|)                      the gradient of the loss on a minibatch
    d    = scale (g + decay w) + anchor (g(w0) + decay w0) + prox (w - w0) + shift
    v   <- momentum v + d,    w <- w - lr v               v = 0 at the start of every round

Weight decay is the gradient of decay/2 |w|^2, a term of every client's objective. It therefore belongs to every
gradient of an algorithm's formula, full gradients too. This is again a direction of the same form: decay w = decay
(w - w0) + decay w0, so it adds scale decay to prox and (scale + anchor) decay w0 to shift, and the trainers need not
know of it.
With scale 1 and no other term it is PyTorch's `clip_grad_norm_` followed by `SGD(momentum, weight_decay)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dragfl.types import Affine


@dataclass(frozen=True)
class LocalSGD:
    """The settings of the local optimiser; the defaults are plain SGD."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None

    @property
    def needs_gradient(self) -> bool:
        """Whether a step needs the whole gradient, so that a trainer cannot add it to the model layer by layer."""
        return bool(self.momentum) or self.clip_norm is not None

    def decay(self, w0: Tensor) -> Tensor | None:
        """decay w0, computed once for all clients that start from w0; None without weight decay."""
        return self.weight_decay * w0 if self.weight_decay else None

    def mean_gradient(self, total: Tensor, samples: int, w: Tensor) -> Tensor:
        """The mean of a summed gradient at w, with weight decay."""
        mean, decay = total / samples, self.decay(w)
        return mean if decay is None else mean + decay

    def decayed(self, affine: Affine, decay: Tensor | None) -> Affine:
        """The direction with weight decay."""
        if decay is None:
            return affine
        weight = affine.scale + affine.anchor
        pull = decay if weight == 1.0 else weight * decay
        shift = pull if affine.shift is None else affine.shift + pull
        return replace(affine, prox=affine.prox + affine.scale * self.weight_decay, shift=shift)

    def clipped(self, grads: list[Tensor]) -> list[Tensor]:
        """The gradient with a norm of at most `clip_norm`; the small constant is PyTorch's."""
        if self.clip_norm is None:
            return grads
        length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        factor = (self.clip_norm / (length + 1e-6)).clamp(max=1.0)
        return [g * factor for g in grads]
