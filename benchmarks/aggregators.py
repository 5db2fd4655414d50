"""Robust rules on (n, d) float32 updates, against ByzFL's on the same torch tensors, one thread, taking turns.

ByzFL is loaded by `tests/oracle.py`; without it only our own times are measured. ByzFL's NNM gathers n (n - f) d
numbers, 13 GB for (20, 10,000,000): it is skipped where free memory is too small.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.results import Comparison, Contender, Row, on, rows, timed
from benchmarks.timing import Tick, silent, threads
from benchmarks.workloads import SEED
from dragfl import functional as fn

SHAPES = SMALL, LARGE = (40, 416_047), (20, 10_000_000)
NU, ITERATIONS = 0.1, 3  # ByzFL's defaults for the geometric median


def measure(
    repeats: int, tick: Tick = silent, shapes: tuple[tuple[int, int], ...] = (SMALL, LARGE)
) -> list[Comparison]:
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
    byzfl = oracle()
    ours: dict[str, Callable[[], object]] = {
        "median": lambda: fn.median(X),
        "trimmed_mean": lambda: fn.trimmed_mean(X, f),
        "krum": lambda: fn.krum(X, f),
        "multi_krum": lambda: fn.multi_krum(X, f),
        "geometric_median": lambda: fn.geometric_median(X, NU, ITERATIONS),
        "mea_med": lambda: fn.mea_med(X, f),
        "nnm": lambda: fn.nnm(X, f),
    }
    if byzfl is None:
        return {name: (rule, None) for name, rule in ours.items()}
    made = {
        "median": byzfl.Median(),
        "trimmed_mean": byzfl.TrMean(f),
        "krum": byzfl.Krum(f),
        "multi_krum": byzfl.MultiKrum(f),
        "geometric_median": byzfl.GeometricMedian(NU, ITERATIONS),
        "mea_med": byzfl.Meamed(f),
        "nnm": byzfl.NNM(f),
    }
    gathered = 4 * X.shape[0] * (X.shape[0] - f) * X.shape[1]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 1.3 * gathered > free:
        del made["nnm"]
    return {name: (rule, _on(made[name], X) if name in made else None) for name, rule in ours.items()}


def _on(rule: Callable[[torch.Tensor], object], X: torch.Tensor) -> Callable[[], object]:
    return lambda: rule(X)


def oracle() -> Any:
    """ByzFL, or None where it is not installed."""
    path = Path(__file__).resolve().parents[1] / "tests" / "oracle.py"
    spec = importlib.util.spec_from_file_location("oracle", path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.byzfl
