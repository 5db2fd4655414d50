"""The robust rules as functions: (n, d) updates in, one (d,) step out. Public as `dragfl.functional`.

Rows with a NaN or an infinity are dropped, and f is lowered by their number. Too few rows for a rule are an error with
the numbers; if no row is left, the step is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np

from dragfl.aggregates.robust.bulyan import Bulyan
from dragfl.aggregates.robust.caf import CAF
from dragfl.aggregates.robust.clipping import clip_around, clipped_mean
from dragfl.aggregates.robust.contract import ColumnRule, HasF, WeightRule, check_count, find_shortage, part_name
from dragfl.aggregates.robust.coordinate_wise import MeaMed, Median, TrimmedMean
from dragfl.aggregates.robust.dnc import DnC
from dragfl.aggregates.robust.flame import Flame
from dragfl.aggregates.robust.fools_gold import dissimilarity, normalised
from dragfl.aggregates.robust.geometric_median import GeometricMedian
from dragfl.aggregates.robust.gram import blend, dots, tame
from dragfl.aggregates.robust.krum import Krum, MultiKrum
from dragfl.aggregates.robust.mda import MDA
from dragfl.aggregates.robust.pipeline import apply_parts, rows_of, transform_rows
from dragfl.aggregates.robust.preaggregation import ARC, NNM, Bucketing
from dragfl.aggregates.robust.rule import needed_model
from dragfl.aggregates.robust.sign_guard import SignGuard
from dragfl.arithmetic import finite_rows, row_norms
from dragfl.arrays import Array, like, matrix, vector
from dragfl.errors import Infeasible, SpecError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range

Rng = np.random.Generator
HINT = "lower f or give more updates"


def _finite_rows(name: str, updates: Tensor | np.ndarray) -> tuple[Tensor, Tensor, int]:
    """(finite rows, their norms, how many rows were not finite)."""
    X = matrix(name, updates)
    norms = row_norms(X)
    keep = finite_rows(norms)
    if keep.all():
        return X, norms, 0
    return X[keep], norms[keep], len(X) - int(keep.sum())


def _check(part: object, n: int, dropped: int) -> None:
    if isinstance(part, HasF) and part.f is None:
        raise SpecError(f"{part_name(part)}: f is None; give the number of updates assumed to be malicious")
    if why := find_shortage((part,), n, None, dropped, HINT):
        raise SpecError(why)


def apply_rule(rule: Any, updates: Array, rng: Rng | None = None, model: Array | None = None) -> Array:
    """The step of a rule with `weights` or `columns`; `model` is for a rule that compares local models."""
    X, norms, dropped = _finite_rows(part_name(rule), updates)
    if not len(X):
        return like(X.new_zeros(X.shape[1]), updates)
    _check(rule, len(X), dropped)
    w = needed_model(rule, None if model is None else vector(part_name(rule), "model", model, X))
    draws = np.random.default_rng(0) if rng is None else rng
    try:
        outcome = apply_parts((rule,), X, norms, None, dropped, draws, model=w)
    except Infeasible as error:
        raise SpecError(str(error)) from None
    return like(outcome.step, updates)


def apply_preaggregator(part: Any, updates: Array, rng: Rng | None = None) -> Array:
    """The rows (n', d) of a pre-aggregator."""
    X, norms, dropped = _finite_rows(part_name(part), updates)
    if not len(X):
        return like(X, updates)
    _check(part, len(X), dropped)
    rows = transform_rows((part,), X, norms, None, dropped, np.random.default_rng(0) if rng is None else rng)
    return like(rows_of(rows), updates)


Settings = ParamSpec("Settings")


def one_shot(kind: Callable[Settings, Any]) -> Callable[Concatenate[Array, Settings], Array]:
    """A function (updates, settings...) for a rule or pre-aggregator without random draws."""

    def form(updates: Array, /, *args: Settings.args, **settings: Settings.kwargs) -> Array:
        part = kind(*args, **settings)
        apply = apply_rule if isinstance(part, WeightRule | ColumnRule) else apply_preaggregator
        return apply(part, updates)

    form.__doc__, form.__name__ = kind.__doc__, str(getattr(kind, "name", kind.__name__))
    first = Parameter("updates", Parameter.POSITIONAL_ONLY, annotation="Array")
    form.__signature__ = Signature([first, *signature(kind).parameters.values()])  # type: ignore[attr-defined]
    return form


median = one_shot(Median)
trimmed_mean = one_shot(TrimmedMean)
mea_med = one_shot(MeaMed)
krum = one_shot(Krum)
multi_krum = one_shot(MultiKrum)
bulyan = one_shot(Bulyan)
geometric_median = one_shot(GeometricMedian)
mda = one_shot(MDA)
caf = one_shot(CAF)
nnm = one_shot(NNM)
arc = one_shot(ARC)


def dnc(
    updates: Array,
    f: int,
    rng: Rng | None = None,
    *,
    coordinates: int = 10_000,
    iterations: int = 5,
    c: float = 1.0,
) -> Array:
    """The mean of updates that never stick out on random coordinates; without `rng` the draws are always the same."""
    return apply_rule(DnC(f, coordinates, iterations, c), updates, rng)


def sign_guard(
    updates: Array,
    rng: Rng | None = None,
    *,
    low: float = 0.1,
    high: float = 3.0,
    fraction: float = 0.1,
    cluster: Literal["mean_shift", "k_means"] = "mean_shift",
    features: Literal["shares", "scaled"] = "shares",
) -> Array:
    """The clipped mean of updates with ordinary lengths and signs; without `rng` the draws are always the same."""
    return apply_rule(SignGuard(low, high, fraction, cluster, features), updates, rng)


def flame(
    updates: Array,
    rng: Rng | None = None,
    *,
    epsilon: float = 3000.0,
    delta: float = 0.01,
    space: Literal["update", "weights"] = "update",
    model: Array | None = None,
) -> Array:
    """The clipped mean of the largest cluster of directions, with noise (`epsilon=inf`: none).

    `space="weights"` compares the local models and needs the `model` (d,) that was sent out.
    """
    return apply_rule(Flame(epsilon, delta, space), updates, rng, model)


def bucketing(updates: Array, size: int, rng: Rng | None = None) -> Array:
    """(ceil(n/size), d): means of random buckets; without `rng` the draws are always the same."""
    return apply_preaggregator(Bucketing(size, 0), updates, rng)


def norm_clipping(updates: Array, radius: float | None = None) -> Array:
    """The mean of updates clipped to a length, the median length if none is given."""
    X, norms, _ = _finite_rows("norm_clipping", updates)
    if radius is not None:
        check_range("norm_clipping", "radius", radius, 0.0, 1e30)
    if not len(X):
        return like(X.new_zeros(X.shape[1]), updates)
    X, norms = tame(X, norms), norms.clamp_max(1e150) if X.dtype == torch.float64 else norms
    return like(clipped_mean(X, norms, radius), updates)


def centered_clipping(updates: Array, center: Array, radius: float | None = None, iterations: int = 1) -> Array:
    """v + mean (g - v) min(1, radius/|g - v|), `iterations` times from v = center; the median distance as radius."""
    X, norms, _ = _finite_rows("centered_clipping", updates)
    v = vector("centered_clipping", "center", center, X)
    check_count("centered_clipping", "iterations", iterations, 0)
    if radius is not None:
        check_range("centered_clipping", "radius", radius, 0.0, 1e30)
    if not len(X) or iterations == 0:
        return like(v.clone(), updates)
    X, norms = tame(X, norms), norms.clamp_max(1e150) if X.dtype == torch.float64 else norms
    clipped, kept, _ = clip_around(X, norms, v, radius, iterations)
    return like(((1.0 - kept) * v.double() + clipped.double()).to(v.dtype), updates)


def fools_gold(
    updates: Array, history: Array | None = None, *, on_identical: Literal["mean", "skip"] = "mean"
) -> Array:
    """Updates weighted by how dissimilar their histories (n, d) are: sums so far, these updates included.

    Without a history the updates themselves are compared, as in a first round.
    """
    X = matrix("fools_gold", updates)
    H = X if history is None else matrix("fools_gold", history).to(X)
    if H.shape != X.shape:
        raise SpecError(
            f"fools_gold: history is {tuple(H.shape)} and the updates are {tuple(X.shape)}; give a row each"
        )
    norms, lengths = row_norms(X), row_norms(H)
    keep = finite_rows(norms) & finite_rows(lengths)
    X, norms, H, lengths = X[keep], norms[keep], H[keep], lengths[keep]
    if not len(X):
        return like(X.new_zeros(X.shape[1]), updates)
    w, _ = dissimilarity(dots(tame(H, lengths)))
    weights = normalised(w, on_identical).unsqueeze(0)
    return like(blend(weights, tame(X, norms), float(norms.max()))[0], updates)


def rlr(updates: Array, threshold: float) -> Array:
    """The mean, reversed in every coordinate where |sum of signs| is below the threshold (about f + 1)."""
    X, norms, _ = _finite_rows("rlr", updates)
    check_range("rlr", "threshold", threshold, 0.0, 1e9)
    if not len(X):
        return like(X.new_zeros(X.shape[1]), updates)
    mean = blend(torch.full((1, len(X)), 1.0 / len(X)).double(), tame(X, norms), float(norms.max()))[0]
    return like(torch.where(X.sign().sum(0).abs() >= threshold, mean, -mean), updates)
