"""Parts at work: pre-aggregators as one matrix P, then the last part on P X, in column pieces where it can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragfl.aggregates.robust.gram import Gram, blend, pieces, tame
from dragfl.aggregates.robust.ordering import WIDTH
from dragfl.aggregates.robust.rule import Weighting, assumed
from dragfl.arithmetic import row_norms

END = torch.finfo(torch.float64).max


@dataclass(frozen=True)
class Outcome:
    """The step, and what each of the updates that went in looks like."""

    step: Tensor  # (d,) in the dtype of the updates
    suspicion: Tensor  # (n,) float64


def rows_of(parts: Sequence[Any], X: Tensor, norms: Tensor, f: int | None, lost: int, rng: np.random.Generator) -> Gram:
    """The rows after these pre-aggregators, as a Gram: only the matrix P is made, not P X."""
    gram = Gram(tame(X, norms), norms.clamp_max(1e150) if X.dtype == torch.float64 else norms)
    for part in parts:
        matrix = part.matrix(gram, assumed(part, f, lost), rng)
        gram = gram.mixed(matrix, matrix if getattr(part, "buckets", False) else None)
    return gram


def made(gram: Gram, cut: slice = slice(None)) -> Tensor:
    """The rows themselves, or a piece of their columns."""
    X = gram.X[:, cut]
    if gram.P is None:
        return X
    chosen = _chosen(gram.P)
    return X[chosen] if chosen is not None else blend(gram.P, X, float(gram.norm.max()))


def apply(
    parts: Sequence[Any],
    X: Tensor,
    norms: Tensor,
    f: int | None,
    lost: int,
    rng: np.random.Generator,
    *,
    score: bool = False,
) -> Outcome:
    """Pre-aggregators and a last part with `weights` or `columns`, on finite rows X with these norms."""
    *before, last = parts
    gram = rows_of(before, X, norms, f, lost, rng)
    have = assumed(last, f, lost)
    if hasattr(last, "weights"):
        found: Weighting = last.weights(gram, have, rng)
        weights = found.weights if gram.P is None else found.weights @ gram.P
        step = blend(weights.unsqueeze(0), gram.X, float(gram.norm.max()))[0]
        if found.noise > 0.0:
            end = torch.finfo(step.dtype).max
            step += found.noise * torch.from_numpy(rng.standard_normal(len(step), np.float32)).to(step)
            step.clamp_(-end, end)
        return Outcome(step, by_client(found.suspicion, gram) if score else found.suspicion)
    scores = by_client(last.scores(gram, have), gram) if score and hasattr(last, "scores") else None
    if hasattr(last, "matrix"):
        gram = gram.mixed(last.matrix(gram, have, rng))
    if gram.P is None:
        step = last.columns(gram.X, have)
    else:
        step = torch.cat([last.columns(made(gram, cut), have) for cut in pieces(X.shape[1], WIDTH)])
    if scores is None:
        scores = distances_from(X, step) if score else torch.zeros_like(norms)
    return Outcome(step, scores)


def by_client(scores: Tensor, gram: Gram) -> Tensor:
    """(n,) scores of clients from those of rows: row i speaks for client i, a bucket for all that are in it."""
    if gram.members is None:
        return scores
    inside = (gram.members != 0).to(scores.dtype)
    return (scores @ inside) / inside.sum(0).clamp_min(1.0)


def distances_from(X: Tensor, v: Tensor) -> Tensor:
    """(n,) float64 distances of the rows from v, piece by piece; finite."""
    out = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    for cut in pieces(X.shape[1]):
        part = row_norms(X[:, cut] - v[cut])
        if not torch.isfinite(part).all():
            part = row_norms(X[:, cut].double() - v[cut].double())
        out = torch.hypot(out, part)
    return out.clamp_max_(END)


def _chosen(P: Tensor) -> Tensor | None:
    """The index of a matrix that only picks rows, so that they need not be multiplied out."""
    if bool(((P == 0) | (P == 1)).all()) and bool((P.sum(1) == 1).all()):
        return P.argmax(1)
    return None
