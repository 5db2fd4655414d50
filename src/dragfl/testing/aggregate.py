"""Does an aggregate keep its contract?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from dragfl.errors import Infeasible
from dragfl.rng import rng
from dragfl.testing.bench import COHORT, COMMON, Bench, info, updates
from dragfl.testing.values import apart, differ, is_frozen
from dragfl.types import Aggregate, Need, Partial, RoundInputs, State, Updates

AGGREGATE: Mapping[str, str] = {
    "runs": "with exactly what needs() asks for, begin, fold and finish run for any cohort of one finite "
    "update or more; fold may raise Infeasible where fewer arrived than were sampled",
    "needs": "needs() is a frozenset of words out of " + ", ".join(map(repr, get_args(Need))),
    **COMMON,
    "plan": "a plan is a frozen dataclass",
    "partial": "a Partial counts its rows and holds the (d,) total of their updates, tensors as sums, and "
    "per_client columns of one number a row in the order of the rows",
    "step": "the step is a (d,) float32 tensor, finite for finite updates",
    "metrics": "metrics map names to finite Python floats",
    "extremes": "updates of size 1e30 and 1e-30 give a finite step and finite metrics",
    "permutation": "the order of the updates does not matter, within float tolerance",
    "additive": "fold(A) + fold(B) equals fold(A and B), within float tolerance, unless needs() says 'all'",
    "anonymous": "a rule never learns who is who: other client ids change no bit of the step",
}


def check_aggregate(
    rule: Aggregate[Any, Any],
    *,
    dim: int = 12,
    segments: tuple[int, ...] | None = None,
    seed: int = 0,
    skip: Collection[str] = (),
) -> None:
    """Check an aggregate against `AGGREGATE`; `segments` are the tensor boundaries (0, ..., dim) it sees.

    >>> from dragfl.aggregates import Drag
    >>> check_aggregate(Drag(c=0.25))
    """
    bench = Bench(rule, AGGREGATE, info(dim, segments), seed, frozenset(skip))
    for check in (_any_cohort, _in_a_worker, _permuted, _cut, _relabelled, _resumed):
        check(bench)


@dataclass(frozen=True)
class Round:
    """What one round came to."""

    plan: Any
    partial: Partial
    step: Tensor
    state: State
    metrics: Mapping[str, float]

    def named(self, *, columns: bool = True) -> dict[str, object]:
        partial = self.partial if columns else dataclasses.replace(self.partial, per_client={})
        return {
            "the step": self.step,
            "the state": self.state,
            "metrics": self.metrics,
            "the partial": partial,
        }


def _round(
    bench: Bench,
    state: State,
    cohort: Updates,
    case: str,
    *,
    t: int = 0,
    blocks: Collection[slice] = (slice(None),),
    root: Tensor | None = None,
    finite: str = "step",
) -> Round:
    """One round, each value checked by itself; `finite` is the property that asks for finite results."""
    needs = bench.call("needs", case, state)
    if not isinstance(needs, frozenset) or not needs <= set(get_args(Need)):
        bench.fail("needs", f"needs() gave {needs!r} ({case})")
    root = bench.rows("root", t).mean(0) if root is None else root
    mean = cohort.delta.mean(0)
    given = RoundInputs(root if "root" in needs else None, mean if "mean" in needs else None)
    plan = bench.call("begin", case, state, bench.context(t), given, bench.info)
    if not is_frozen(plan):
        bench.fail("plan", f"begin gave a {type(plan).__name__} ({case})")
    first, *rest = (cohort.select(torch.arange(len(cohort))[rows]) for rows in blocks)
    partial = _fold(bench, plan, first, case, finite)
    for block in rest:
        partial = partial + _fold(bench, plan, block, case, finite)
    step, after, metrics = bench.answers(3, "finish", case, state, plan, partial)
    bench.vector(finite, step, f"the step ({case})")
    _check_metrics(bench, metrics, case, "metrics" if finite == "step" else finite)
    return Round(plan, partial, step, bench.state(after, "finish"), metrics)


def _fold(bench: Bench, plan: Any, block: Updates, case: str, finite: str) -> Partial:
    """The partial of a block, checked."""
    k = len(block)
    try:
        partial = bench.call("fold", case, plan, block)
    except Infeasible as error:
        if k >= bench.info.per_round:
            bench.crash("fold", case, error)
        raise
    if not isinstance(partial, Partial):
        bench.crash("fold", case, TypeError(f"it returned a {type(partial).__name__}, not a Partial"))
    if partial.count != k:
        bench.fail("partial", f"count is {partial.count} for {k} updates ({case})")
    for name, column in partial.per_client.items():
        if getattr(column, "shape", None) != (k,):
            seen = tuple(getattr(column, "shape", ())) or type(column).__name__
            bench.fail("partial", f"per_client['{name}'] is {seen} for {k} updates ({case})")
    for name, value in partial.sums.items():
        if not hasattr(value, "double"):
            bench.fail("partial", f"sums['{name}'] is a {type(value).__name__} ({case})")
    total = block.delta.double().sum(0)
    if finite == "step" and (gap := apart({"the total": partial.total}, {"the total": total})):
        bench.fail("partial", f"beside the sum of the updates {gap} ({case})")
    return partial


def _check_metrics(bench: Bench, metrics: object, case: str, name: str) -> None:
    if not isinstance(metrics, Mapping):
        bench.fail("metrics", f"they are a {type(metrics).__name__} ({case})")
        return
    for key, value in metrics.items():
        if type(value) is not float or not math.isfinite(value):
            bench.fail(name, f"'{key}' is {value!r}, a {type(value).__name__} ({case})")


def _any_cohort(bench: Bench) -> None:
    """One round with every kind of finite cohort and of root update, and an ordinary round after it."""
    rows = bench.rows("cohort")
    third = torch.zeros(COHORT, 1, dtype=torch.bool)
    third[2] = True
    cohorts = {
        "ordinary updates": rows,
        "one update zero": rows.masked_fill(third, 0.0),
        "all updates zero": torch.zeros_like(rows),
        "one client": rows[:1],
        "one client, its update zero": torch.zeros_like(rows[:1]),
        "identical updates": rows[:1].repeat(COHORT, 1),
        "opposite updates": torch.cat([rows, -rows]),
        "updates of sizes from 1e-6 to 1e6": rows * torch.logspace(-6, 6, COHORT).unsqueeze(1),
    }
    extremes = {
        "one update of size 1e30": torch.where(third, 1e30 * rows, rows),
        "updates of size 1e30": 1e30 * rows,
        "one update of size 1e-30": torch.where(third, 1e-30 * rows, rows),
        "updates of size 1e-30": 1e-30 * rows,
    }
    for case, delta in {**cohorts, **({} if "extremes" in bench.skip else extremes)}.items():
        finite = "extremes" if case in extremes else "step"
        try:
            done = _round(bench, bench.start(), updates(delta), case, finite=finite)
        except Infeasible:
            continue
        _round(bench, done.state, updates(rows), f"the round after one with {case}", t=1, finite=finite)
    vanished = torch.zeros(bench.info.dim)
    _round(bench, bench.start(), updates(rows), "a root update of zero", root=vanished)


def _in_a_worker(bench: Bench) -> None:
    """The rule, plan and partial on their way to a worker and back."""
    cohort = updates(bench.rows("cohort"))
    here = _round(bench, bench.start(), cohort, "ordinary updates")
    rule, plan = bench.piped("the rule", bench.part), bench.piped("the plan", here.plan)
    there = bench.piped("the partial", rule.fold(plan, cohort))
    if seen := differ(here.partial, there, "the partial"):
        bench.fail("worker", f"a copy of the rule and its plan gave other bits in {seen}")


def _permuted(bench: Bench) -> None:
    """The same cohort in another order: the same results, and the same columns in that order."""
    cohort = updates(bench.rows("cohort", 1))
    order = torch.arange(COHORT).roll(3).flip(0)
    first = _round(bench, bench.start(), cohort, "ordinary updates")
    other = _round(bench, bench.start(), cohort.select(order), "the same updates in another order")
    if gap := apart(first.named(columns=False), other.named(columns=False)):
        bench.fail("permutation", f"with the updates in another order {gap}")
    columns = {name: column[order] for name, column in first.partial.per_client.items()}
    if gap := apart({"per_client": columns}, {"per_client": other.partial.per_client}):
        bench.fail("permutation", f"with the updates in another order, row for row, {gap}")


def _cut(bench: Bench) -> None:
    """A cohort folded in blocks of several cuts against the cohort folded at once."""
    if "all" in bench.call("needs", "the start", bench.start()):
        return
    rows = bench.rows("cohort", 2)
    rows[3] = 0.0
    cohort = updates(rows)
    once = _round(bench, bench.start(), cohort, "one block")
    singles = [slice(i, i + 1) for i in range(COHORT)]
    for blocks in ([slice(0, 3), slice(3, COHORT)], [slice(0, 1), slice(1, COHORT)], singles):
        sizes = [len(range(COHORT)[block]) for block in blocks]
        cut = _round(bench, bench.start(), cohort, f"blocks of {sizes}", blocks=blocks)
        if gap := apart(once.named(), cut.named()):
            bench.fail("additive", f"for {COHORT} updates in blocks of {sizes} and in one block {gap}")


def _relabelled(bench: Bench) -> None:
    """The same updates under other client ids."""
    cohort = updates(bench.rows("cohort", 3))
    draw = rng(bench.seed, "testing", "ids")
    ids = torch.from_numpy(draw.choice(np.arange(COHORT, bench.info.clients), COHORT, replace=False))
    first = _round(bench, bench.start(), cohort, "client ids 0, 1, ...")
    other = _round(bench, bench.start(), dataclasses.replace(cohort, client=ids), "other client ids")
    if seen := differ(first.step, other.step, "the step"):
        gap = float((first.step - other.step).abs().max())
        bench.fail("anonymous", f"other client ids changed {seen} by {gap:.3g}")


def _resumed(bench: Bench) -> None:
    """Rounds of several sizes, one without movement, beside a run whose state is rebuilt each round."""
    state = saved = bench.start()
    for t, k in enumerate((COHORT, 3, 5, 1, COHORT)):
        cohort = updates(bench.rows("cohort", t, k) * (0.0 if t == 2 else 1.0))
        try:
            straight = _round(bench, state, cohort, f"round {t}", t=t)
        except Infeasible:  # the engine skips the round, and the state stays as it is
            continue
        resumed = _round(bench, bench.rebuilt(saved), cohort, f"round {t}, resumed", t=t)
        if seen := differ(straight.step, resumed.step, "the step"):
            bench.fail("state", f"round {t} with a state rebuilt from its fields gave other bits in {seen}")
        state, saved = straight.state, resumed.state
