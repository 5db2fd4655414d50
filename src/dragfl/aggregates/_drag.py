"""The arithmetic that DRAG and BR-DRAG share: updates modified ("dragged") towards a unit direction rhat.

With x = cos(g, r) and the degree of divergence lambda, both rules use v = s ((1 - lambda) g/|g| + lambda rhat), with
s = |g| in DRAG and s = |r| in BR-DRAG. Then, exactly,

    <v, rhat> / s = x + c (1 - x)^2 >= x               (linear divergence)
    |v|^2 / s^2   = 1 - 2 lambda (1 - lambda) (1 - x)

The degree of divergence measures how far an update points away from r. The paper starts from the angle
arccos(x) / (pi/2) and names two linear approximations:

    linear   c (1 - x)            arccos x ~ pi/2 - (pi/2) x     the paper's choice; exact at x = 0 and x = 1
    angle    c (2/pi) arccos x    no approximation
    shallow  c (1 - 2x/pi)        arccos x ~ pi/2 - x            the tangent at x = 0; not 0 at x = 1
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, get_args

from dragfl.arithmetic import EPS, combine, cosines, dot, inverse_norms, row_dots
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice
from dragfl.types import Partial, Updates

Divergence = Literal["linear", "angle", "shallow"]


def divergence_degree(cosine: Tensor, c: float, kind: Divergence = "linear") -> Tensor:
    """lambda for each cosine, in [0, 2c]."""
    check_choice("divergence", "kind", kind, get_args(Divergence))
    if kind == "angle":
        return cosine.arccos() * (2.0 * c / math.pi)
    if kind == "shallow":
        return (1.0 - cosine * (2.0 / math.pi)) * c
    return (1.0 - cosine) * c


def cosines_and_divergences(norms: Tensor, dots: Tensor, c: float, kind: Divergence) -> tuple[Tensor, Tensor]:
    """(x, lambda) of updates with these norms and dots with rhat. A zero update does not diverge."""
    x = cosines(norms, dots)
    return x, divergence_degree(x, c, kind).masked_fill(norms <= EPS, 0.0)


def fold_dragged(
    block: Updates, rhat: Tensor | None, c: float, kind: Divergence, *, normalise: bool
) -> tuple[Partial, Tensor]:
    """(partial, lambda) with the sums A = sum (1 - lambda) g and b = sum lambda |g|.

    With `normalise` (BR-DRAG) A = sum (1 - lambda) g/|g| and b = sum lambda. Without a direction (rhat is None) every
    lambda is 0. For the telemetry: `directions` + `dragged` rhat is the sum of v/|v| over the `moving` clients,
    `inner` = <rhat, directions> and `along` = <rhat, sum g>.
    """
    norms = block.norm
    if rhat is None:
        x, lam = torch.ones_like(norms), torch.zeros_like(norms)
    else:
        x, lam = cosines_and_divergences(norms, row_dots(block.delta, rhat), c, kind)
    inverse = inverse_norms(norms)
    length = (1.0 - 2.0 * lam * (1.0 - lam) * (1.0 - x)).clamp_min(0.0).sqrt()  # |v| / s
    moving = (norms > EPS) & (length > EPS)
    share = torch.where(moving, 1.0 / length.clamp_min(EPS), 0.0)
    kept, turned = (1.0 - lam) * (inverse if normalise else 1.0), (1.0 - lam) * share
    weights = torch.stack([kept, turned * inverse, torch.ones_like(lam)])
    A, directions, total = combine(weights, block.delta)
    sums = {
        "A": A,
        "b": (lam if normalise else lam * norms).sum(),
        "along": (x * norms).sum(),
        "directions": directions,
        "dragged": (lam * share).sum(),
        "inner": (turned * x).sum(),
        "moving": moving.sum(),
    }
    per_client = {"norm": norms, "cosine": x, "divergence": lam, "suspicion": 1.0 - x}
    return Partial.of(block, sums, per_client, total), lam


def drag_metrics(partial: Partial, rhat: Tensor | None) -> Mapping[str, float]:
    """Per round: mean lambda, share of lambda > 1, cos(r, mean g), mean pairwise cosine of the modified updates."""
    lam = partial.per_client["divergence"]
    metrics = {
        "divergence_mean": float(lam.mean()),
        "divergence_above_1": float((lam > 1.0).double().mean()),
        "pairwise_cosine": pairwise_cosine(partial.sums),
    }
    if rhat is not None and partial.norm > EPS:
        metrics["reference_cosine"] = max(-1.0, min(1.0, float(partial.sums["along"]) / partial.norm))
    return metrics


def pairwise_cosine(sums: Mapping[str, Tensor]) -> float:
    """Mean cosine over pairs of k unit vectors with sum D: (|D|^2 - k) / (k (k - 1)); 1 for k < 2.

    D is `directions`; for modified updates it is `directions` + `dragged` rhat, whose square needs no vector rhat.
    """
    k, D = float(sums["moving"]), sums["directions"]
    if not k > 1:
        return 1.0
    square = dot(D, D)
    if "dragged" in sums:
        pull = float(sums["dragged"])
        square += pull * (2.0 * float(sums["inner"]) + pull)
    return (square - k) / (k * (k - 1))
