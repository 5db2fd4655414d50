"""Measure what docs/fixed-points.md states, and write docs/theory/fixed-points.json: minutes on one core.

    python docs/figures/measure_fixed_points.py           everything
    python docs/figures/measure_fixed_points.py rates     only this part; the file keeps the others

Every number is from `dragfl.theory.simulation` with the seeds below. `make_fixed_points.py` draws the figures from it.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dragfl import __version__
from dragfl.schedules import Schedule
from dragfl.theory.fixed_points import divergence_boundary
from dragfl.theory.simulation import Array, pull_to, simulate, tilted_wells, two_pairs
from dragfl.theory.theorem import Constants, Setting, bound

OUT = Path(__file__).resolve().parents[1] / "theory" / "fixed-points.json"
SEED = 1
LOST = 1e59  # the simulator holds a model that is longer than 1e60
S = 0.3  # of the diagram over c and the angle; alpha = 1
ANGLES = (0, 15, 30, 45, 60, 75, 90)
PAIRS_OF_RATES = ((0.3, 1.0), (0.5, 1.0), (1.0, 1.0), (0.5, 0.25), (0.4, 0.1), (0.5, 0.05))
CLIENTS = 10  # of SCAFFOLD
FLOOR_C = (0.0, 0.05, 0.1, 0.15, 0.2, 0.24, 0.3, 0.35, 0.4)
STEPS, SMOOTHNESS, TILT, NOISE = 5, 2.0, 0.3, 0.1  # of the problem that is not convex
FIRST, HORIZONS, SEEDS = 4096, 5, 8  # horizons 4096, 8192, ..., and seeds
PROBLEM = Constants(SMOOTHNESS, NOISE * 4**0.5, TILT, 4 * 0.5)  # four dimensions, from (1, 1, 1, 1)
LARGE = 0.2  # a c that is not covered
COVERED = {"c": 0.01, "lr": 0.005}  # eta L U = 0.05 and Gamma = 0.125 at the first horizon


def main(parts: Sequence[str]) -> None:
    for measure in (circles, floors, gradient_floors, rates, angles, ratios, attraction, distances):
        if not parts or measure.__name__ in parts:
            part = measure()
            found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {}
            found |= {"version": __version__, "machine": f"{platform.machine()}, NumPy {np.__version__}", "seed": SEED}
            OUT.write_text(json.dumps(found | {measure.__name__: part}) + "\n")


def starts(runs: int, dim: int) -> Array:
    return np.random.default_rng(SEED).normal(0.0, 3.0, (runs, dim))


def final(centres: Array, start: Array, rounds: int, **settings: Any) -> Array:
    *_, models = simulate(pull_to(centres), start, centres.shape[-2], rounds, **settings)
    return models


def boundary(centres: Array, s: float, alpha: float, *, expected: float, low: float = 0.98, **more: Any) -> float:
    """The least c of a grid of 0.25 % around the expected boundary at which half of eight runs or more are lost."""
    grid, runs = expected * np.arange(low, 1.0201, 0.0025), 8
    start = starts(len(grid) * runs, centres.shape[-1])
    ends = final(centres, start, 6000, c=np.repeat(grid, runs), lr=s, alpha=alpha, seed=SEED, **more)
    lost = (np.linalg.norm(ends, axis=1) > LOST).reshape(len(grid), runs).mean(1)
    return float(grid[np.argmax(lost >= 0.5)]) if (lost >= 0.5).any() else float("nan")


def line_boundary(s: float, **more: Any) -> float:
    """The same on a line, for a model 100 times as far away as the clients."""
    grid, runs = 0.25 * np.arange(0.98, 1.0201, 0.0025), 8
    start = np.tile(np.linspace(-0.9, 0.9, runs), len(grid))[:, None]
    centres = np.array([[-1.0], [1.0]] * (CLIENTS // 2))
    rounds = int(40.0 / s / 0.01)
    ends = final(centres, start, rounds, c=np.repeat(grid, runs), lr=s, seed=SEED, limit=1e6, **more)
    lost = (np.abs(ends[:, 0]) > 100.0).reshape(len(grid), runs).mean(1)
    return float(grid[np.argmax(lost >= 0.5)])


def angles() -> dict[str, Any]:
    """The boundary of divergence for two pairs of clients at each angle, and on a line."""
    due = divergence_boundary(S)
    plane = [{"angle": a, "c": boundary(two_pairs(np.radians(a)), S, 1.0, expected=due)} for a in ANGLES]
    return {"line": line_boundary(S), "plane": plane}


def distances() -> dict[str, Any]:
    """The median distance to the optimum, rounds 1000 to 3000, eight starts, over c and the angle."""
    c, angle, runs = np.linspace(0.01, 0.42, 42), np.linspace(0.0, 90.0, 13), 8
    centres = np.repeat([two_pairs(np.radians(a)) for a in angle], len(c) * runs, axis=0)
    all_c = np.tile(np.repeat(c, runs), len(angle))
    models = simulate(pull_to(centres), starts(len(all_c), 2), 4, 3000, c=all_c, lr=S)
    kept = np.stack([np.linalg.norm(w, axis=1) for t, w in enumerate(models) if t >= 1000 and t % 7 == 0])
    median = np.median(kept.reshape(len(kept), len(angle), len(c), runs), axis=(0, 3))
    return {"s": S, "c": c.tolist(), "angle": angle.tolist(), "median": np.round(median, 5).tolist()}


def ratios() -> list[dict[str, float]]:
    """The boundary over s / alpha: two pairs at 60 degrees, and ten clients at random in ten dimensions."""
    ten = np.random.default_rng(SEED).normal(size=(CLIENTS, 10))
    rows = []
    for s, alpha in PAIRS_OF_RATES:
        due = divergence_boundary(s, alpha)
        low = 0.98 if s <= 2.5 * alpha else 0.92  # beyond, models are lost below the formula
        found = [boundary(each, s, alpha, expected=due, low=low) for each in (two_pairs(np.pi / 3), ten)]
        rows.append({"s": s, "alpha": alpha, "plane": found[0], "ten": found[1]})
    return rows


def circles() -> dict[str, Any]:
    """The mean distance for c from 0.01 to 0.2: two clients on a line, and four at plus and minus two axes."""
    c, start = np.array([0.01, 0.02, 0.05, 0.1, 0.15, 0.2]), np.array([-3.0, 0.5])
    line = final(np.array([[-1.0], [1.0]]), np.full((len(c), 1), -3.0), 3000, c=c, lr=S)
    out: dict[str, Any] = {"c": c.tolist(), "line": np.abs(line[:, 0]).tolist(), "plane": []}
    for s, alpha in ((0.3, 1.0), (0.03, 1.0), (0.03, 0.1)):
        models = simulate(pull_to(two_pairs(np.pi / 2)), np.tile(start, (len(c), 1)), 4, 4000, c=c, lr=s, alpha=alpha)
        kept = np.stack([np.linalg.norm(w, axis=1) for t, w in enumerate(models) if t >= 2000])
        out["plane"].append({"s": s, "alpha": alpha, "radius": kept.mean(0).tolist()})
    return out


def floors() -> list[dict[str, Any]]:
    """The mean of |theta - theta*|^2 over that of FedAvg, SCAFFOLD's clients with noise, s = 0.1, over dimensions.

    The second half of 2000 rounds; 40 runs in one and two dimensions, 8 in ten, 4 in a hundred.
    """
    s, rows = 0.1, []
    fedavg = s / (CLIENTS * (2.0 - s))
    for d, runs in ((1, 40), (2, 40), (10, 8), (100, 4)):
        c = [each for each in FLOOR_C if d > 1 or each < 0.25]
        total = np.zeros(len(c) * runs)
        models = simulate(
            pull_to(np.zeros((CLIENTS, d))), np.zeros((len(total), d)), CLIENTS, 2000,
            c=np.repeat(c, runs), lr=s, noise=1.0, scaffold=True, seed=SEED,
        )  # fmt: skip
        for t, w in enumerate(models):
            total += (w**2).sum(1) * (t >= 1000)
        each = (total / 1000 / d / fedavg).reshape(len(c), runs)
        rows.append({"d": d, "c": c, "ratio": each.mean(1).tolist(), "error": (each.std(1) / runs**0.5).tolist()})
    return rows


def attraction() -> list[dict[str, float]]:
    """The c above which noise drives SCAFFOLD with DRAG's aggregate away, for each s, in 1 and 2 dimensions."""
    rows = []
    more = {"noise": 1.0, "scaffold": True}
    for s in (0.3, 0.5, 1.0):
        due = divergence_boundary(s)
        two = boundary(np.zeros((CLIENTS, 2)), s, 1.0, expected=due, **more)
        rows.append({"s": s, "line": line_boundary(s, **more), "two": two})
    return rows


def tilts(d: int, size: float = TILT) -> Array:
    """Two groups of clients with opposite tilts along the first axis."""
    a = np.zeros((CLIENTS, d))
    a[:5, 0], a[5:, 0] = size, -size
    return a


def squares(models: Array) -> Array:
    """|grad f|^2 of every model."""
    slopes: Array = np.asarray(((2.0 * models / (1.0 + models**2) ** 2) ** 2).sum(1))
    return slopes


def mean_squares(d: int, c: Any, lr: Any, rounds: int, seed: int) -> Array:
    """The mean of |grad f|^2 over the first 1, 2, ... models from (1, ..., 1): (rounds, curves, seeds).

    `c` is one setting, or a list with one number for each curve.
    """
    curves = len(c) if isinstance(c, list) else 1
    start = np.ones((curves * SEEDS, d))
    c = np.repeat(c, SEEDS) if isinstance(c, list) else c
    models = simulate(
        tilted_wells(tilts(d)), start, CLIENTS, rounds - 1, c=c, lr=lr, steps=STEPS, noise=NOISE, seed=seed
    )
    each = np.stack([squares(start), *map(squares, models)])
    means: Array = np.cumsum(each, axis=0) / np.arange(1, rounds + 1)[:, None]
    return means.reshape(rounds, curves, SEEDS)


def rates() -> dict[str, Any]:
    """The mean of |grad f|^2 over T rounds, horizons and seeds, and its slope over log T with a 95 % interval."""
    horizons = [FIRST * 2**i for i in range(HORIZONS)]
    rows, bounds = [], []
    for i, T in enumerate(horizons):
        k = (FIRST / T) ** 0.5
        c, lr = COVERED["c"] * k, COVERED["lr"] * k
        plane = mean_squares(4, [c, LARGE * k, LARGE], lr, T, SEED + i)[-1]
        rows.append(np.concatenate([plane, mean_squares(1, [LARGE], lr, T, SEED + i)[-1]]))
        terms = bound(Setting(c, lr, STEPS, 1), PROBLEM, T)
        bounds.append(terms.total if terms else None)
    fading = {key: Schedule(value, "inverse_sqrt", period=FIRST) for key, value in COVERED.items()}
    every = mean_squares(4, fading["c"], fading["lr"], horizons[-1], SEED)[np.array(horizons) - 1, 0]
    curves = dict(zip(("covered", "large", "constant", "line"), np.stack(rows, axis=1), strict=True))
    found = {name: curve(horizons, each) for name, each in {**curves, "anytime": every}.items()}
    return {"horizons": horizons, "bound": bounds, "curves": found}


def curve(horizons: list[int], each: Array) -> dict[str, Any]:
    """Mean over seeds at every horizon; the slope of every seed, their mean and its 95 % interval (Student's t)."""
    slopes = np.polyfit(np.log(horizons), np.log(each), 1)[0]
    half = 2.365 * slopes.std(ddof=1) / SEEDS**0.5  # t with 7 degrees of freedom
    last = np.log(each[-1] / each[-2]) / np.log(2.0)
    return {
        "mean": each.mean(1).tolist(),
        "slope": float(slopes.mean()),
        "interval": [float(slopes.mean() - half), float(slopes.mean() + half)],
        "last_slope": float(last.mean()),
    }


def gradient_floors() -> list[dict[str, Any]]:
    """|grad f|^2 at the end for a constant c and learning rate, full gradients: over c and over the tilt, d = 1, 4."""
    c, sizes = np.array([0.01, 0.02, 0.04, 0.08, 0.16]), np.array([0.05, 0.1, 0.2])
    rows = []
    for d in (1, 4):
        for over, values in (("c", c), ("tilt", sizes)):
            rates_c = c if over == "c" else np.full(len(sizes), 0.08)
            width = np.full(len(c), 0.1) if over == "c" else sizes
            repeat = 8
            a = np.repeat([tilts(d, size) for size in width], repeat, axis=0)
            start = np.random.default_rng(SEED).normal(0.0, 0.3, (len(values) * repeat, d))
            models = simulate(tilted_wells(a), start, CLIENTS, 6000, c=np.repeat(rates_c, repeat), lr=0.02, steps=STEPS)
            kept = np.mean([squares(w) for t, w in enumerate(models) if t >= 3000], axis=0).reshape(-1, repeat)
            slopes = np.polyfit(np.log(values), np.log(kept), 1)[0]
            half = 2.365 * slopes.std(ddof=1) / repeat**0.5
            rows.append(
                {"d": d, "over": over, "values": values.tolist(), "mean": kept.mean(1).tolist(),
                 "slope": float(slopes.mean()), "interval": [float(slopes.mean() - half), float(slopes.mean() + half)]}
            )  # fmt: skip
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
