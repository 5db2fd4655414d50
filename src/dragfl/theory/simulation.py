"""DRAG on problems with known gradients, for many runs at once: the simulator behind the measured points of the theory.

A run is a row: models are (runs, d), updates (runs, clients, d), and c, the step and alpha may differ from run to run.
All clients take part in every round. The arithmetic is that of the library's `Drag` and `Scaffold`, in float64;
tests/theory/test_simulation.py compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dragfl.arithmetic import EPS
from dragfl.schedules import Schedule

Array = NDArray[np.float64]
Gradient = Callable[[Array], Array]  # models (runs, clients, d) -> the gradient of each client at its model
Setting = float | Schedule | Array  # one number for all runs, one for each, or a number that changes with the round


def drag_steps(updates: Array, reference: Array, c: float | Array) -> Array:
    """The step of every run, (runs, d): mean of (1 - lambda) g + lambda |g| r/|r|, lambda = c (1 - cos(g, r))."""
    norms = np.linalg.norm(updates, axis=2)
    size = np.linalg.norm(reference, axis=1)[:, None]
    rhat = np.where(size > EPS, reference / np.maximum(size, EPS), 0.0)
    dots = np.einsum("nmd,nd->nm", updates, rhat)
    x = np.where(norms > EPS, np.clip(dots / np.maximum(norms, EPS), -1.0, 1.0), 1.0)
    lam = np.where(size > EPS, np.reshape(c, (-1, 1)) * (1.0 - x), 0.0)
    kept = np.einsum("nm,nmd->nd", 1.0 - lam, updates) / updates.shape[1]
    step: Array = kept + np.mean(lam * norms, axis=1)[:, None] * rhat
    return step


def simulate(
    gradient: Gradient,
    start: Array,
    clients: int,
    rounds: int,
    *,
    c: Setting,
    lr: Setting,
    steps: int = 1,
    alpha: float | Array = 1.0,
    noise: float = 0.0,
    scaffold: bool = False,
    seed: int = 0,
    limit: float = 1e60,
) -> Iterator[Array]:
    """The models after each round, (runs, d). A run whose model gets longer than `limit` stays where it is.

    `noise` is the standard deviation of every coordinate of a stochastic gradient.
    """
    rng = np.random.default_rng(seed)
    model, r = start.astype(np.float64), None
    control = np.zeros((len(start), clients, start.shape[1]))
    for t in range(rounds):
        rate = _column(lr, t)
        shift = control.mean(1, keepdims=True) - control if scaffold else 0.0
        local = np.repeat(model[:, None], clients, axis=1)
        for _ in range(steps):
            slope = gradient(local)
            slope = slope + noise * rng.standard_normal(slope.shape) if noise else slope
            local = local - rate[..., None] * (slope + shift)
        updates = local - model[:, None]
        if scaffold:  # option II: c_m - c - g_m / (U eta)
            control = -shift - updates / (steps * rate[..., None])
        r = updates.mean(1) if r is None else r
        step = drag_steps(updates, r, _column(c, t))
        moving = (np.linalg.norm(step, axis=1) > EPS)[:, None]
        a = np.reshape(alpha, (-1, 1))
        r = np.where(moving, (1.0 - a) * r + a * step, r)
        inside = (np.linalg.norm(model, axis=1) < limit)[:, None]
        model = np.where(inside, model + step, model)
        yield model


def _column(value: Setting, t: int) -> Array:
    """A setting at round t as (runs, 1), or (1, 1)."""
    return np.reshape(np.asarray(value(t) if isinstance(value, Schedule) else value, np.float64), (-1, 1))


def pull_to(centres: Array) -> Gradient:
    """The gradients of |theta - b_m|^2 / 2, for centres (clients, d), or (runs, clients, d) that differ by run."""
    return lambda models: models - centres


def two_pairs(angle: float) -> Array:
    """Four clients at +-(cos, sin)(angle/2) and +-(cos, -sin)(angle/2): two pairs of opposite offsets at this angle."""
    p, q = np.cos(angle / 2.0), np.sin(angle / 2.0)
    return np.array([[p, q], [p, -q], [-p, q], [-p, -q]])


def tilted_wells(tilts: Array) -> Gradient:
    """The gradients of F_m = sum_j theta_j^2 / (1 + theta_j^2) + <a_m, theta>, for tilts a_m (clients, d) of mean zero.

    Their mean f is not convex, has L = 2, f* = 0 at theta = 0, and sigma_G is the largest |a_m| everywhere.
    """
    return lambda models: 2.0 * models / (1.0 + models**2) ** 2 + tilts
