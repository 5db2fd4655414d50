"""Matrix products in float32: by oneDNN where they are large and on a CPU, by torch's own routine elsewhere.

On x86 torch multiplies matrices with MKL, which uses AVX-512 on Intel processors only. oneDNN comes with torch too, for
convolutions, and uses it on every processor that has it: on an AMD EPYC it is twice as fast. On one machine the
shapes alone decide which of them is used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

LARGE = 1 << 20  # multiplications; a call of oneDNN costs 10 microseconds more
ROWS = 32  # rows summed over from which it pays to write a product and add it, instead of adding in place


def _onednn_linear() -> Any:
    """The operator that torch.compile emits for a linear layer; None in builds of torch without it."""
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None) if available else None


_LINEAR = _onednn_linear()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for x (n, in), or (g, n, in) of g clients, and W (out, in), without autograd.

    Clients are computed one after the other, so the bits of one do not depend on the others in its group.
    """
    if x.ndim == 3:
        return torch.stack([linear(samples, weight, bias) for samples in x])
    small = x.numel() * len(weight) < LARGE
    if small or _LINEAR is None or x.device.type != "cpu" or x.dtype != torch.float32:
        return nnf.linear(x, weight, bias)
    result: Tensor = _LINEAR(x, weight, bias, "none", [], "")
    return result


def forward(module: nn.Module, x: Tensor) -> Tensor:
    """module(x) without autograd; the linear layers of an `nn.Sequential` by `linear`."""
    if type(module) is not nn.Sequential:
        return module(x)  # type: ignore[no-any-return]
    for part in module:
        x = linear(x, part.weight, part.bias) if type(part) is nn.Linear and x.ndim == 2 else part(x)
    return x


def add_outer_products(weight: Tensor, errors: Tensor, inputs: Tensor, rate: float) -> None:
    """W <- W + rate errors^T inputs, for errors (n, out) and inputs (n, in)."""
    if len(errors) < ROWS:
        weight.addmm_(errors.mT, inputs, alpha=rate)
    else:
        weight.add_(linear(errors.mT, inputs.mT), alpha=rate)
