"""Apply parts to updates: pre-aggregators as one matrix P, then the last rule on P X, in column pieces if possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dragfl.aggregates.robust.contract import (
    ColumnRule,
    MakesBuckets,
    ScoresRows,
    TransformsRows,
    WeightRule,
    assumed_f,
)
from dragfl.aggregates.robust.gram import Gram, blend, pieces, tame
from dragfl.aggregates.robust.ordering import WIDTH
from dragfl.arithmetic import row_norms
from dragfl.lazy import Tensor, torch


@dataclass(frozen=True)
class Outcome:
    """The step, and the suspicion score of every update."""

    step: Tensor  # (d,) in the dtype of the updates
    suspicion: Tensor  # (n,) float64


def transform_rows(
    parts: Sequence[object],
    X: Tensor,
    norms: Tensor,
    f: int | None,
    missing: int,
    rng: np.random.Generator,
    *,
    model: Tensor | None = None,
) -> Gram:
    """The rows after these pre-aggregators, as a Gram: it holds the matrix P, not P X."""
    gram = Gram(tame(X, norms), norms.clamp_max(1e150) if X.dtype == torch.float64 else norms, model=model)
    for part in parts:
        assert isinstance(part, TransformsRows)
        P = part.matrix(gram, assumed_f(part, f, missing), rng)
        gram = gram.mixed(P, P if isinstance(part, MakesBuckets) else None)
    return gram


def rows_of(gram: Gram, cut: slice = slice(None)) -> Tensor:
    """The rows P X themselves, or some of their columns."""
    X = gram.X[:, cut]
    if gram.P is None:
        return X
    selected = _selected_rows(gram.P)
    return X[selected] if selected is not None else blend(gram.P, X, float(gram.norm.max()))


def apply_parts(
    parts: Sequence[object],
    X: Tensor,
    norms: Tensor,
    f: int | None,
    missing: int,
    rng: np.random.Generator,
    *,
    score: bool = False,
    model: Tensor | None = None,
) -> Outcome:
    """Pre-aggregators and a last part with `weights` or `columns`, on finite rows X with these norms.

    `model` is the model sent out, for a last part that compares local models.
    """
    *before, last = parts
    gram = transform_rows(before, X, norms, f, missing, rng, model=model)
    have = assumed_f(last, f, missing)
    if isinstance(last, WeightRule):
        return _apply_weights(last, gram, have, rng, score)
    assert isinstance(last, ColumnRule)
    scores = by_client(last.scores(gram, have), gram) if score and isinstance(last, ScoresRows) else None
    if isinstance(last, TransformsRows):
        gram = gram.mixed(last.matrix(gram, have, rng))
    if gram.P is None:
        step = last.columns(gram.X, have)
    else:
        step = torch.cat([last.columns(rows_of(gram, cut), have) for cut in pieces(X.shape[1], WIDTH)])
    if scores is None:
        scores = distances_from(X, step) if score else torch.zeros_like(norms)
    return Outcome(step, scores)


def _apply_weights(rule: WeightRule, gram: Gram, f: int, rng: np.random.Generator, score: bool) -> Outcome:
    result = rule.weights(gram, f, rng)
    weights = result.weights if gram.P is None else result.weights @ gram.P
    step = blend(weights.unsqueeze(0), gram.X, float(gram.norm.max()))[0]
    if result.noise > 0.0:
        end = torch.finfo(step.dtype).max
        step += result.noise * torch.from_numpy(rng.standard_normal(len(step), np.float32)).to(step)
        step.clamp_(-end, end)
    return Outcome(step, by_client(result.suspicion, gram) if score else result.suspicion)


def by_client(scores: Tensor, gram: Gram) -> Tensor:
    """(n,) scores of clients from those of rows: client i has the score of row i, or the mean of its buckets."""
    if gram.members is None:
        return scores
    inside = (gram.members != 0).to(scores.dtype)
    return (scores @ inside) / inside.sum(0).clamp_min(1.0)


def distances_from(X: Tensor, v: Tensor) -> Tensor:
    """(n,) float64 distances of the rows from v, computed in column pieces; finite."""
    out = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    for cut in pieces(X.shape[1]):
        part = row_norms(X[:, cut] - v[cut])
        if not torch.isfinite(part).all():
            part = row_norms(X[:, cut].double() - v[cut].double())
        out = torch.hypot(out, part)
    return out.clamp_max_(torch.finfo(torch.float64).max)


def _selected_rows(P: Tensor) -> Tensor | None:
    """The indices, if P only selects rows: then no product is needed."""
    if bool(((P == 0) | (P == 1)).all()) and bool((P.sum(1) == 1).all()):
        return P.argmax(1)
    return None
