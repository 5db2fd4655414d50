"""Rounds of an aggregate without an engine, and DRAG written out client by client in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.types import Aggregate, FederationInfo, Partial, RoundContext, RoundInputs, State, Updates


@dataclass(frozen=True)
class Outcome:
    step: Tensor
    state: State
    metrics: Mapping[str, float]
    partial: Partial
    plan: Any


def block(rows: Any, weight: Any = None) -> Updates:
    """Rows as updates of clients 0, 1, ..."""
    delta = torch.as_tensor(rows, dtype=torch.float32)
    weights = torch.ones(len(delta)) if weight is None else torch.tensor(weight)
    return Updates(delta, weights.double(), torch.arange(len(delta)))


def run_rule(
    rule: Aggregate,
    cohort: Any,
    *,
    state: State = None,
    t: int = 0,
    root: Any = None,
    directions: Any = None,
    model: Any = None,
    segments: tuple[int, ...] | None = None,
    cut: Sequence[slice] = (slice(None),),
) -> Outcome:
    """One round: needs, begin, a fold for each block of the cut, sum, finish."""
    updates = cohort if isinstance(cohort, Updates) else block(cohort)
    d = updates.delta.shape[1]
    info = FederationInfo(d, clients=len(updates), per_round=len(updates), segments=segments or (0, d))
    state = rule.init(info) if state is None else state
    needs = rule.needs(state)
    given = RoundInputs(
        root=torch.as_tensor(root, dtype=torch.float32) if "root" in needs else None,
        directions=torch.as_tensor(directions, dtype=torch.float32) if "directions" in needs else None,
        mean=updates.delta.mean(0) if "mean" in needs else None,
        model=torch.as_tensor(model, dtype=torch.float32) if "model" in needs else None,
    )
    plan = rule.begin(state, RoundContext(t=t, lr=0.1, seed=0), given, info)
    first, *rest = (rule.fold(plan, updates.select(torch.arange(len(updates))[rows])) for rows in cut)
    partial = sum(rest, first)
    return Outcome(*rule.finish(state, plan, partial), partial, plan)


def reference_step(X: Any, r: Any, c: float, *, normalise: bool) -> NDArray[np.float64]:
    """The mean of v_m = s_m ((1 - lambda_m) g_m/|g_m| + lambda_m r/|r|), s_m = |g_m| or |r|, one client at a time."""
    X, r = np.asarray(X, np.float64), np.asarray(r, np.float64)
    dragged = []
    for g in X:
        size, length = np.linalg.norm(g), np.linalg.norm(r)
        if size <= 1e-12:
            dragged.append(np.zeros_like(g))
            continue
        x = np.clip(g @ r / (size * length), -1.0, 1.0)
        lam = c * (1.0 - x)
        dragged.append((length if normalise else size) * ((1.0 - lam) * g / size + lam * r / length))
    return np.mean(dragged, axis=0)
