"""Robust rules on (n, d) float32 updates, against ByzFL's on the same torch tensors, one thread, taking turns.

ByzFL is loaded by `tests/oracle.py`; without it only our own times are measured. ByzFL's NNM gathers n (n - f) d
numbers, 13 GB for (20, 10,000,000): it is skipped where free memory is too small.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import torch
from tests.oracle import byzfl

from benchmarks.results import Comparison, Contender, Row, on, rows, timed
from benchmarks.timing import Tick, silent, threads
from benchmarks.workloads import SEED
from dragfl import functional as fn

LARGE = (20, 10_000_000)
SHAPES = ((40, 416_047), LARGE)
NU, ITERATIONS = 0.1, 3  # ByzFL's defaults for the geometric median


def measure(repeats: int, tick: Tick = silent, shapes: tuple[tuple[int, int], ...] = SHAPES) -> list[Comparison]:
    """One comparison per shape, with one thread; the large shape is slow and has one turn."""
    with threads(1):
        return [_compare(shape, repeats if shape != LARGE else 1, tick) for shape in shapes]


def _compare(shape: tuple[int, int], repeats: int, tick: Tick) -> Comparison:
    X = torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))
    found: list[Row] = []
    for name, (ours, theirs) in contenders(X, shape[0] // 5).items():
        pair = [Contender(name, "dragfl", on(1), ours)]
        pair += [] if theirs is None else [Contender(f"{name}, ByzFL", "peer", on(1), theirs)]
        found += rows(pair, timed(pair, repeats, tick), {} if theirs is None else {"ByzFL": pair[1]})
    title = f"robust rules on {shape[0]} updates of {shape[1]:,} numbers, 1 thread"
    return Comparison("aggregators", title, tuple(found), ("ByzFL",), repeats)


def contenders(X: torch.Tensor, f: int) -> dict[str, tuple[Callable[[], object], Callable[[], object] | None]]:
    """Rule -> (ours, ByzFL's or None)."""
    settings: dict[str, tuple[str, tuple[float, ...]]] = {  # rule -> (class of ByzFL, the settings of both)
        "median": ("Median", ()),
        "trimmed_mean": ("TrMean", (f,)),
        "krum": ("Krum", (f,)),
        "multi_krum": ("MultiKrum", (f,)),
        "geometric_median": ("GeometricMedian", (NU, ITERATIONS)),
        "mea_med": ("Meamed", (f,)),
        "nnm": ("NNM", (f,)),
    }
    gathered = 4 * X.shape[0] * (X.shape[0] - f) * X.shape[1]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    out: dict[str, tuple[Callable[[], object], Callable[[], object] | None]] = {}
    for name, (kind, values) in settings.items():
        possible = byzfl is not None and (name != "nnm" or 1.3 * gathered < free)
        theirs = partial(getattr(byzfl, kind)(*values), X) if possible else None
        out[name] = partial(getattr(fn, name), X, *values), theirs
    return out
