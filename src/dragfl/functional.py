"""The arithmetic alone: (n, d) updates in, one (d,) step out, for torch tensors and numpy arrays.

Every function takes the updates of one round as an (n, d) float32 or float64 tensor or array and returns the same kind
and dtype. Rows with a NaN or an infinity are dropped, as everywhere in dragfl; if none is left, the step is zero.
`aggregate` applies any rule by its name.

>>> import torch
>>> drag(torch.tensor([[3.0, 4.0], [0.0, 2.0], [-5.0, 0.0]]), torch.tensor([1.0, 0.0]), c=0.25)
tensor([1.2333, 1.7000])
>>> median(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 2.0], [10.0, -10.0]]))
tensor([1., 1.])

Parameters
----------
updates
    (n, d) updates of a round, one row for each client.
reference
    (d,) the direction towards which updates are modified.
root
    (d,) the update of the trusted root data.
c
    How strongly updates are modified, in [0, 1]; 0 is the mean update.
kind
    The form of the degree of divergence: "linear", "angle" or "shallow".
f
    The number of updates that are assumed to be malicious.
rng
    A numpy Generator for the random draws; without it the draws are always the same.
radius
    The length to which updates, or their distances from the centre, are clipped; default: the median.
center
    (d,) the vector around which updates are clipped, such as the last step.
history
    (n, d) the sums of all updates of each client so far.
threshold
    The sum of signs in a coordinate below which the mean is reversed; about f + 1.
size
    Number of updates in a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from dragfl.aggregates import AGGREGATES
from dragfl.aggregates._drag import Divergence, cosines_and_divergences
from dragfl.aggregates.cone_drag import ConeDrag
from dragfl.aggregates.function import function_rule
from dragfl.aggregates.robust.one_shot import (
    arc,
    bucketing,
    bulyan,
    caf,
    centered_clipping,
    dnc,
    flame,
    fools_gold,
    geometric_median,
    krum,
    mda,
    mea_med,
    median,
    multi_krum,
    nnm,
    norm_clipping,
    rlr,
    sign_guard,
    trimmed_mean,
)
from dragfl.algorithms import chain
from dragfl.arithmetic import (
    EPS,
    FLOAT32_SAFE,
    combine,
    cosines,
    finite_rows,
    inverse_norms,
    norm,
    row_dots,
    row_norms,
    unit,
)
from dragfl.arrays import Array, like, matrix, vector, vectors
from dragfl.errors import SpecError, nearest
from dragfl.lazy import Tensor, torch
from dragfl.own_code import import_object, is_function, name_of
from dragfl.schedules import check_range
from dragfl.types import Aggregate, FederationInfo, RoundContext, RoundInputs, Updates

__all__ = [
    "aggregate",
    "arc",
    "br_drag",
    "bucketing",
    "bulyan",
    "caf",
    "centered_clipping",
    "cone_drag",
    "divergence",
    "dnc",
    "drag",
    "flame",
    "fltrust",
    "fools_gold",
    "geometric_median",
    "krum",
    "mda",
    "mea_med",
    "mean",
    "median",
    "multi_krum",
    "nnm",
    "norm_clipping",
    "rlr",
    "sign_guard",
    "trimmed_mean",
]

NEEDED = {
    "root": "the update of the root data",
    "directions": "the update of each class of the root data",
    "model": "the model that was sent out",
}


def _finite(X: Tensor, norms: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """X, norms and values without the rows that are not finite; no copy where all are."""
    keep = finite_rows(norms)
    return (X, norms, *values) if keep.all() else tuple(v[keep] for v in (X, norms, *values))


def aggregate(
    rule: str | Aggregate[Any, Any] | Callable[..., Any],
    updates: Array,
    *,
    root: Array | None = None,
    directions: Array | None = None,
    model: Array | None = None,
    seed: int = 0,
    **settings: Any,
) -> Array:
    """The step of any aggregate in its first round: a name with its settings, or the rule itself.

    Parameters
    ----------
    rule
        A name of the registry, `module:attr` of a rule of your own, a chain such as `nnm+module:rule`, or the rule or
        function itself.
    updates
        (n, d) updates of a round, one row for each client.
    root
        (d,) the update of the trusted root data, for rules that need it.
    directions
        (K, d) the update of each class of the root data, for rules that need it.
    model
        (d,) the model that was sent out, for rules that need it.
    seed
        For rules with random draws.
    **settings
        The settings of a named rule or of a function.
    """
    if isinstance(rule, str) or callable(rule):
        rule = _rule(rule, settings)
    return _first_step("aggregate", rule, updates, root, directions, model, seed)


def _first_step(
    name: str,
    rule: Aggregate[Any, Any],
    updates: Array,
    root: Array | None,
    directions: Array | None = None,
    model: Array | None = None,
    seed: int = 0,
) -> Array:
    """The step of a rule in its first round; `name` is the function that was called."""
    X = matrix(name, updates)
    given = RoundInputs(
        root=None if root is None else vector(name, "root", root, X),
        directions=None if directions is None else vectors(name, "directions", directions, X),
        model=None if model is None else vector(name, "model", model, X),
    )
    X, norms = _finite(X, row_norms(X))
    if not len(X):
        return like(X.new_zeros(X.shape[1]), updates)
    n, d = X.shape
    info = FederationInfo(dim=d, clients=n, per_round=n, segments=(0, d))
    state = rule.init(info)
    needs = rule.needs(state)
    for need, what in NEEDED.items():
        if need in needs and getattr(given, need) is None:
            raise SpecError(f"{name}: {name_of(rule).rpartition(':')[2]} needs {what}; give {need}")
    inputs = replace(given, mean=X.mean(0) if "mean" in needs else None)
    plan = rule.begin(state, RoundContext(t=0, lr=1.0, seed=seed), inputs, info)
    partial = rule.fold(plan, Updates(X, torch.ones_like(norms), torch.arange(n)))
    return like(rule.finish(state, plan, partial)[0].to(X.dtype), updates)


def _rule(given: Any, settings: dict[str, Any]) -> Aggregate[Any, Any]:
    """The rule of a name, a class or a function with these settings."""
    if isinstance(given, str) and "+" in given:
        return cast("Aggregate[Any, Any]", chain(*given.split("+"), **settings))
    if isinstance(given, str) and given not in AGGREGATES and ":" not in given:
        raise SpecError(f"aggregate: unknown rule '{given}'{nearest(given, AGGREGATES)}")
    found = given
    if isinstance(given, str):
        found = AGGREGATES.get(given) or import_object("aggregate", given)
    if is_function(found):
        return function_rule("aggregate", found, settings, given if isinstance(given, str) else "")
    return cast("Aggregate[Any, Any]", found(**settings) if isinstance(found, type) else found)


def mean(updates: Array) -> Array:
    """The mean update: (1/n) sum_m g_m."""
    X = matrix("mean", updates)
    X, norms = _finite(X, row_norms(X))
    if not len(X):
        return like(X.new_zeros(X.shape[1]), updates)
    return like(combine(torch.full_like(norms, 1.0 / len(X)).unsqueeze(0), X)[0], updates)


def divergence(updates: Array, reference: Array, c: float, kind: Divergence = "linear") -> Array:
    """(n,) degrees of divergence lambda_m = c (1 - cos(g_m, r)); NaN for a row that is not finite."""
    X = matrix("divergence", updates)
    r = vector("divergence", "reference", reference, X)
    check_range("divergence", "c", c, 0.0, 1.0)
    rhat = unit(r)
    if rhat is None:
        raise SpecError("divergence: the reference is the zero vector, which has no direction; give another one")
    norms, dots = row_norms(X), row_dots(X, rhat)
    _, lam = cosines_and_divergences(norms, dots, c, kind)
    return like(lam.masked_fill(~finite_rows(norms), torch.nan).to(X.dtype), updates)


def drag(updates: Array, reference: Array, c: float, kind: Divergence = "linear") -> Array:
    """DRAG's step: mean of (1 - lambda_m) g_m + lambda_m |g_m| r/|r|. A zero reference drags nothing."""
    X = matrix("drag", updates)
    r = vector("drag", "reference", reference, X)
    check_range("drag", "c", c, 0.0, 1.0)
    size = norm(r)
    if not size > EPS or c == 0.0:
        return mean(updates)
    X, norms, dots = _finite(X, row_norms(X), row_dots(X, r))  # with r itself: r/|r| would be one more pass
    if not len(X):
        return like(torch.zeros_like(r), updates)
    _, lam = cosines_and_divergences(norms, dots / size, c, kind)
    step = combine((1.0 - lam).unsqueeze(0) / len(X), X)[0]
    pull = float(lam @ norms) / len(X) / size
    if 1.0 / FLOAT32_SAFE < pull < FLOAT32_SAFE or pull == 0.0:
        return like(step.add_(r, alpha=pull), updates)
    return like((step.double() + pull * r.double()).to(X.dtype), updates)


def br_drag(updates: Array, root: Array, c: float, kind: Divergence = "linear") -> Array:
    """BR-DRAG's step: mean of (1 - lambda_m) (|r|/|g_m|) g_m + lambda_m r; zero for a zero root update."""
    X = matrix("br_drag", updates)
    r = vector("br_drag", "root", root, X)
    check_range("br_drag", "c", c, 0.0, 1.0)
    rhat = unit(r)
    if rhat is None:
        return like(torch.zeros_like(r), updates)
    X, norms, dots = _finite(X, row_norms(X), row_dots(X, rhat))
    if not len(X):
        return like(torch.zeros_like(r), updates)
    _, lam = cosines_and_divergences(norms, dots, c, kind)
    step = combine((norm(r) / len(X) * (1.0 - lam) * inverse_norms(norms)).unsqueeze(0), X)[0]
    return like(step.add_(r, alpha=float(lam.mean())), updates)


def cone_drag(updates: Array, directions: Array, root: Array, *, turn: bool = True, balance: bool = True) -> Array:
    """Cone DRAG's step in its first round; `directions` (K, d) are D_k, the update of class k.

    A direction that is zero or not finite is left out of the cone. The step is zero if no update fits the cone better
    than its reverse does, or for a zero root update.

    Two orthogonal classes, r = (3, 4), and one client of each class. The fits are x = 1 and x^- = 0, so both weights
    are 1, and both classes are supplied: Delta = 5 ((1, 0) + (0, 1) + (0.6, 0.8)) / 3.

    >>> import torch
    >>> D, r = torch.eye(2), torch.tensor([3.0, 4.0])
    >>> cone_drag(torch.tensor([[2.0, 0.0], [0.0, 7.0]]), D, r)
    tensor([2.6667, 3.0000])

    The second client reverses its update: x = 0 and x^- = 1, so it is turned back.

    >>> cone_drag(torch.tensor([[2.0, 0.0], [0.0, -7.0]]), D, r)
    tensor([2.6667, 3.0000])
    """
    return _first_step("cone_drag", ConeDrag(turn=turn, balance=balance), updates, root, directions)


def fltrust(updates: Array, root: Array) -> Array:
    """FLTrust's step: |g_0| sum TS_m g_m/|g_m| / sum TS_m, TS_m = max(0, cos(g_m, g_0)); zero if none is trusted."""
    X = matrix("fltrust", updates)
    r = vector("fltrust", "root", root, X)
    rhat = unit(r)
    if rhat is None:
        return like(torch.zeros_like(r), updates)
    X, norms, dots = _finite(X, row_norms(X), row_dots(X, rhat))
    trust = cosines(norms, dots).clamp_min_(0.0).masked_fill_(norms <= EPS, 0.0)
    total = float(trust.sum())
    if not total > EPS:
        return like(torch.zeros_like(r), updates)
    return like(combine((trust * inverse_norms(norms) * (norm(r) / total)).unsqueeze(0), X)[0], updates)
