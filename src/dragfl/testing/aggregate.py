"""Check the contract of an aggregate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from dragfl.errors import Infeasible, NotFinite, PartError
from dragfl.rng import rng
from dragfl.testing.checker import COHORT, COMMON, Checker, federation_info, make_updates
from dragfl.testing.compare import differences, different_bits, is_frozen_dataclass
from dragfl.types import Aggregate, Need, Partial, RoundInputs, State, Updates

AGGREGATE: Mapping[str, str] = {
    "runs": "with exactly the inputs that needs() names, begin, fold and finish run for any cohort of at least one "
    "finite update; fold may raise Infeasible if fewer updates arrived than were sampled",
    "needs": "needs() is a frozenset of names among " + ", ".join(map(repr, get_args(Need))),
    **COMMON,
    "plan": "a plan is a frozen dataclass",
    "partial": "a Partial has the number of rows, the (d,) total of their updates, tensors as sums, per_client columns "
    "with one number per row in the order of the rows, and in `extra` an entry for every extra and for 'steps'",
    "step": "the step is a (d,) float32 tensor, finite for finite updates",
    "metrics": "metrics map names to finite Python floats",
    "extremes": "updates of size 1e30 and 1e-30 produce a finite step and finite metrics",
    "permutation": "the order of the updates does not matter, within float tolerance",
    "additive": "fold(A) + fold(B) equals fold(A and B), within float tolerance, unless needs() contains 'all'",
    "anonymous": "the step does not depend on the client ids",
}


def check_aggregate(
    rule: Aggregate[Any, Any],
    *,
    dim: int = 12,
    segments: tuple[int, ...] | None = None,
    seed: int = 0,
    skip: Collection[str] = (),
) -> None:
    """Check an aggregate against `AGGREGATE`; `segments` are the tensor boundaries (0, ..., dim).

    >>> from dragfl.aggregates import Drag
    >>> check_aggregate(Drag(c=0.25))
    """
    checker = Checker(rule, AGGREGATE, federation_info(dim, segments), seed, frozenset(skip))
    for check in (_check_cohorts, _check_worker, _check_permutation, _check_blocks, _check_client_ids, _check_resume):
        check(checker)


@dataclass(frozen=True)
class Round:
    """The results of one round."""

    plan: Any
    partial: Partial
    step: Tensor
    state: State
    metrics: Mapping[str, float]

    def named(self, *, columns: bool = True) -> dict[str, object]:
        partial = self.partial if columns else dataclasses.replace(self.partial, per_client={})
        return {"the step": self.step, "the state": self.state, "metrics": self.metrics, "the partial": partial}


def _round(
    checker: Checker,
    state: State,
    cohort: Updates,
    case: str,
    *,
    t: int = 0,
    blocks: Collection[slice] = (slice(None),),
    root: Tensor | None = None,
    finite: str = "step",
) -> Round:
    """Run one round and check each value; `finite` is the property that requires finite results."""
    needs = checker.check_needs(state, get_args(Need), case)
    root = checker.draw_rows("root", t).mean(0) if root is None else root
    mean = cohort.delta.mean(0)
    model = checker.draw_rows("model", t).mean(0)
    inputs = RoundInputs(
        root=root if "root" in needs else None,
        directions=checker.draw_rows("directions", t) if "directions" in needs else None,
        mean=mean if "mean" in needs else None,
        model=model if "model" in needs else None,
    )
    plan = checker.call("begin", case, state, checker.context(t), inputs, checker.info)
    if not is_frozen_dataclass(plan):
        checker.fail("plan", f"begin returned a {type(plan).__name__} ({case})")
    first, *rest = (cohort.select(torch.arange(len(cohort))[rows]) for rows in blocks)
    partial = _fold(checker, plan, first, case, finite)
    for block in rest:
        partial = partial + _fold(checker, plan, block, case, finite)
    step, after, metrics = checker.call_tuple(3, "finish", case, state, plan, partial)
    checker.check_vector(finite, step, f"the step ({case})")
    for key, value in metrics.items() if isinstance(metrics, Mapping) else [("metrics", metrics)]:
        if type(value) is not float or not math.isfinite(value):
            name = "metrics" if finite == "step" else finite
            checker.fail(name, f"'{key}' is {value!r}, a {type(value).__name__} ({case})")
    return Round(plan, partial, step, checker.check_state(after, "finish"), metrics)


def _fold(checker: Checker, plan: Any, block: Updates, case: str, finite: str) -> Partial:
    """Fold a block and check the partial."""
    k = len(block)
    try:
        partial: Partial = checker.call("fold", case, plan, block, returns=Partial)
    except Infeasible as error:
        if k >= checker.info.per_round:
            checker.fail_call("fold", case, error)
        raise
    except NotFinite as error:
        checker.fail(finite, f"{error} ({case})", error)
        raise Infeasible(str(error)) from error
    except PartError as error:
        checker.fail_call("fold", case, error)
    if partial.count != k:
        checker.fail("partial", f"count is {partial.count} for {k} updates ({case})")
    for name, column in partial.per_client.items():
        if getattr(column, "shape", None) != (k,):
            seen = tuple(getattr(column, "shape", ())) or type(column).__name__
            checker.fail("partial", f"per_client['{name}'] is {seen} for {k} updates ({case})")
    for name, value in partial.sums.items():
        if not hasattr(value, "double"):
            checker.fail("partial", f"sums['{name}'] is a {type(value).__name__} ({case})")
    expected = {"steps": (), **{name: tuple(value.shape[1:]) for name, value in block.extra.items()}}
    if (shapes := {name: tuple(value.shape) for name, value in partial.extra.items()}) != expected:
        checker.fail("partial", f"extra has the shapes {shapes}, expected {expected} ({case})")
    total = block.delta.double().sum(0)
    if finite == "step" and (gap := differences({"the total": partial.total}, {"the total": total})):
        checker.fail("partial", f"against the sum of the updates {gap} ({case})")
    return partial


def _check_cohorts(checker: Checker) -> None:
    """One round with each kind of finite cohort and root update, followed by an ordinary round."""
    rows = checker.draw_rows("cohort")
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
    for case, delta in {**cohorts, **({} if "extremes" in checker.skip else extremes)}.items():
        finite = "extremes" if case in extremes else "step"
        try:
            first = _round(checker, checker.initial_state(), make_updates(delta), case, finite=finite)
        except Infeasible:
            continue
        _round(checker, first.state, make_updates(rows), f"the round after one with {case}", t=1, finite=finite)
    zero = torch.zeros(checker.info.dim)
    _round(checker, checker.initial_state(), make_updates(rows), "a root update of zero", root=zero)


def _check_worker(checker: Checker) -> None:
    """Send the rule, plan and partial to a worker and back."""
    cohort = make_updates(checker.draw_rows("cohort"))
    local = _round(checker, checker.initial_state(), cohort, "ordinary updates")
    rule, plan = checker.send_to_worker("the rule", checker.part), checker.send_to_worker("the plan", local.plan)
    remote = checker.send_to_worker("the partial", rule.fold(plan, cohort))
    if seen := different_bits(local.partial, remote, "the partial"):
        checker.fail("worker", f"a copy of the rule and its plan returned different bits in {seen}")


def _check_permutation(checker: Checker) -> None:
    """The same cohort in another order has the same results, and the same columns in that order."""
    cohort = make_updates(checker.draw_rows("cohort", 1))
    order = torch.arange(COHORT).roll(3).flip(0)
    first = _round(checker, checker.initial_state(), cohort, "ordinary updates")
    other = _round(checker, checker.initial_state(), cohort.select(order), "the same updates in another order")
    if gap := differences(first.named(columns=False), other.named(columns=False)):
        checker.fail("permutation", f"with the updates in another order {gap}")
    columns = {name: column[order] for name, column in first.partial.per_client.items()}
    if gap := differences({"per_client": columns}, {"per_client": other.partial.per_client}):
        checker.fail("permutation", f"with the updates in another order, row for row, {gap}")


def _check_blocks(checker: Checker) -> None:
    """A cohort folded in several blocks equals the cohort folded at once."""
    if "all" in checker.call("needs", "the start", checker.initial_state()):
        return
    rows = checker.draw_rows("cohort", 2)
    rows[3] = 0.0
    cohort = make_updates(rows)
    once = _round(checker, checker.initial_state(), cohort, "one block")
    singles = [slice(i, i + 1) for i in range(COHORT)]
    for blocks in ([slice(0, 3), slice(3, COHORT)], [slice(0, 1), slice(1, COHORT)], singles):
        sizes = [len(range(COHORT)[block]) for block in blocks]
        cut = _round(checker, checker.initial_state(), cohort, f"blocks of {sizes}", blocks=blocks)
        if gap := differences(once.named(), cut.named()):
            checker.fail("additive", f"for {COHORT} updates in blocks of {sizes} and in one block {gap}")


def _check_client_ids(checker: Checker) -> None:
    """The same updates with other client ids."""
    cohort = make_updates(checker.draw_rows("cohort", 3))
    draw = rng(checker.seed, "testing", "ids")
    ids = torch.from_numpy(draw.choice(np.arange(COHORT, checker.info.clients), COHORT, replace=False))
    first = _round(checker, checker.initial_state(), cohort, "client ids 0, 1, ...")
    other = _round(checker, checker.initial_state(), dataclasses.replace(cohort, client=ids), "other client ids")
    if seen := different_bits(first.step, other.step, "the step"):
        gap = float((first.step - other.step).abs().max())
        checker.fail("anonymous", f"other client ids changed {seen} by {gap:.3g}")


def _check_resume(checker: Checker) -> None:
    """A run whose state is rebuilt each round equals an uninterrupted one; one round has zero updates."""
    state = saved = checker.initial_state()
    for t, k in enumerate((COHORT, 3, 5, 1, COHORT)):
        cohort = make_updates(checker.draw_rows("cohort", t, k) * (0.0 if t == 2 else 1.0))
        try:
            straight = _round(checker, state, cohort, f"round {t}", t=t)
        except Infeasible:  # the engine skips the round, and the state stays as it is
            continue
        resumed = _round(checker, checker.rebuild_state(saved), cohort, f"round {t}, resumed", t=t)
        if seen := different_bits(straight.step, resumed.step, "the step"):
            checker.fail("state", f"round {t} with a state rebuilt from its fields returned different bits in {seen}")
        state, saved = straight.state, resumed.state
