"""The arithmetic that DRAG and BR-DRAG share: a block of updates, dragged towards a unit direction rhat.

With x = cos(g, r) and lambda = degree(x), both rules make v = s ((1 - lambda) g/|g| + lambda rhat), where s = |g| in
DRAG and s = |r| in BR-DRAG. Then, exactly,

    <v, rhat> / s = x + c (1 - x)^2 >= x               (linear divergence)
    |v|^2 / s^2   = 1 - 2 lambda (1 - lambda) (1 - x)
"""

from __future__ import annotations

from collections.abc import Mapping

from dragfl.aggregates._divergence import Divergence, degree
from dragfl.arithmetic import EPS, combine, cosines, dot, norm, row_dots
from dragfl.lazy import Tensor, torch
from dragfl.types import Partial, Updates


def divergences(norms: Tensor, dots: Tensor, c: float, kind: Divergence) -> tuple[Tensor, Tensor]:
    """(cosine, lambda) of updates with these norms and dots with rhat. A zero update does not diverge."""

    x = cosines(norms, dots)
    return x, degree(x, c, kind).masked_fill(norms <= EPS, 0.0)


def inverse_norms(norms: Tensor) -> Tensor:
    """1 / |g|, and 0 for a zero update."""
    return torch.where(norms > EPS, 1.0 / norms.clamp_min(EPS), 0.0)


def fold_dragged(
    block: Updates, rhat: Tensor | None, c: float, kind: Divergence, *, normalise: bool
) -> tuple[Partial, Tensor]:
    """(partial, lambda): sums A = sum (1 - lambda) g and b = sum lambda |g|; with `normalise` g/|g| and sum lambda.

    For the telemetry: `directions` + `dragged` rhat = sum v/|v| over the `moving` clients, and `along` = <rhat, sum g>.
    Without a direction (rhat None) nothing is dragged.
    """

    norms = block.norm
    if rhat is None:
        x, lam = torch.ones_like(norms), torch.zeros_like(norms)
    else:
        x, lam = divergences(norms, row_dots(block.delta, rhat), c, kind)
    inverse = inverse_norms(norms)
    length = (1.0 - 2.0 * lam * (1.0 - lam) * (1.0 - x)).clamp_min(0.0).sqrt()  # |v| / s
    moving = (norms > EPS) & (length > EPS)
    share = torch.where(moving, 1.0 / length.clamp_min(EPS), 0.0)
    kept = (1.0 - lam) * (inverse if normalise else 1.0)
    weights = torch.stack([kept, (1.0 - lam) * inverse * share, torch.ones_like(lam)])
    A, directions, total = combine(weights, block.delta)
    sums = {
        "A": A,
        "b": (lam if normalise else lam * norms).sum(),
        "along": (x * norms).sum(),
        "directions": directions,
        "dragged": (lam * share).sum(),
        "moving": moving.sum(),
    }
    per_client = {"norm": norms, "cosine": x, "divergence": lam, "suspicion": 1.0 - x}
    return Partial.of(block, sums, per_client, total), lam


def drag_metrics(partial: Partial, rhat: Tensor | None) -> Mapping[str, float]:
    """Per round: mean lambda, share of lambda > 1, cos(r, mean g), mean pairwise cosine of the dragged updates."""

    lam = partial.per_client["divergence"]
    metrics = {
        "divergence_mean": float(lam.mean()),
        "divergence_above_1": float((lam > 1.0).double().mean()),
        "pairwise_cosine": pairwise_cosine(partial.sums, rhat),
    }
    total = norm(partial.total)
    if rhat is not None and total > EPS:
        metrics["reference_cosine"] = max(-1.0, min(1.0, float(partial.sums["along"]) / total))
    return metrics


def pairwise_cosine(sums: Mapping[str, Tensor], rhat: Tensor | None = None) -> float:
    """Mean cosine over pairs of k unit vectors with sum D: (|D|^2 - k) / (k (k - 1)); 1 for k < 2.

    D is `directions`, and where updates were dragged `directions` + `dragged` rhat.
    """

    k, D = float(sums["moving"]), sums["directions"]
    if not k > 1:
        return 1.0
    square = dot(D, D)
    if rhat is not None:
        pull = float(sums["dragged"])
        square += pull * (2.0 * dot(D, rhat.to(D.dtype)) + pull)
    return (square - k) / (k * (k - 1))
