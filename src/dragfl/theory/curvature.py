"""The largest absolute eigenvalue of the Hessian of a loss, by power iteration on Hessian-vector products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dragfl.errors import SpecError

Parts = list[Tensor]  # a vector in the shapes of a model's parameters
ITERATIONS, TOLERANCE = 30, 0.01  # stop after so many products, or when |H v| grows by less than 1 %
LEAST = 4  # products before the growth is looked at


def hessian_product(loss: Tensor, parameters: Sequence[Tensor]) -> Callable[[Parts], Parts]:
    """v -> H v for the Hessian H of `loss`; the graph of the gradient is built once."""
    try:
        gradient = torch.autograd.grad(loss, parameters, create_graph=True)

        def product(v: Parts) -> Parts:
            return list(torch.autograd.grad(gradient, parameters, v, retain_graph=True, materialize_grads=True))

        product([torch.zeros_like(p) for p in parameters])
    except RuntimeError as error:
        raise SpecError(f"model.name: it has no second derivatives ({error}); use another model") from None
    return product


def largest_curvature(product: Callable[[Parts], Parts], start: Parts) -> tuple[float, Parts]:
    """(|H v| for the last unit vector v of a power iteration, the next v).

    |H v| grows with each step and never exceeds the spectral norm of H: the result is a lower bound of it.
    """
    v, found = unit(start), 0.0
    for step in range(ITERATIONS):
        image = product(v)
        size = norm(image)
        if size == 0.0:
            return found, v
        v, grown, found = [part / size for part in image], size - found, max(size, found)
        if step + 1 >= LEAST and grown <= TOLERANCE * found:
            break
    return found, v


def norm(parts: Parts) -> float:
    return float(torch.stack([part.double().square().sum() for part in parts]).sum().sqrt())


def unit(parts: Parts) -> Parts:
    size = norm(parts)
    return [part / size for part in parts]
