"""W4: DRAG's fold of a block of updates, against one read of them and the three kernels that it needs at least.

The kernels are the norms of the rows, their dot products with the reference, and one weighted sum: three reads, of
which the last two are slower than a plain sum. All use the same number of threads.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.results import Comparison, Contender, on, rows, timed
from benchmarks.timing import Tick, silent, threads
from benchmarks.workloads import SEED
from dragfl import functional
from dragfl.aggregates.drag import Drag
from dragfl.engine.threads import available_cores
from dragfl.types import FederationInfo, RoundContext, RoundInputs, Updates

SHAPES = ((40, 416_047), (20, 10_000_000))
C = 0.25
LIMIT = 3.0  # reads


def measure(repeats: int, tick: Tick = silent, shapes: tuple[tuple[int, int], ...] = SHAPES) -> list[Comparison]:
    """A comparison for each shape and number of threads."""
    comparisons = []
    for shape in shapes:
        for count in sorted({1, available_cores()}):
            with threads(count):
                comparisons.append(_compare(shape, count, repeats, tick))
    return comparisons


def _compare(shape: tuple[int, int], count: int, repeats: int, tick: Tick) -> Comparison:
    n, d = shape
    draws = torch.Generator().manual_seed(SEED)
    x, r = torch.randn(n, d, generator=draws), torch.randn(d, generator=draws)
    w = torch.rand(n, generator=draws)
    rule, setting = Drag(c=C), FederationInfo(d, n, n, (0, d))
    plan = rule.begin(rule.init(setting), RoundContext(0, 0.1, SEED), RoundInputs(mean=r), setting)
    block = Updates(x, torch.ones(n, dtype=torch.float64), torch.arange(n))

    def kernels() -> None:
        torch.linalg.vector_norm(x, dim=1)
        x @ r
        w @ x

    how, limit = on(count), {"one read": LIMIT}
    read = Contender("one read: x.sum()", "floor", how, lambda: x.sum())
    contenders = [
        read,
        Contender("norms, x @ r, w @ x", "bare", how, kernels),
        Contender("functional.drag", "dragfl", how, lambda: functional.drag(x, r, C), limit),
        Contender("Drag().fold", "dragfl", how, lambda: rule.fold(plan, replace(block)), limit),
    ]
    found = timed(contenders, repeats, tick)
    title = f"DRAG's fold of {n} updates of {d:,} numbers, {how}"
    return Comparison("W4", title, rows(contenders, found, {"one read": read}), ("one read",), repeats)
