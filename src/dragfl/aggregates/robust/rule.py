"""The adapter that makes an aggregate of a part with `weights` or `columns`. In the class body of such a rule:

    least = majority
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule

The server half of a correction must not see a plain sum that the rule would not trust. So every extra that clients
send for the correction is aggregated by the same rule, each separately: an attacker that forges only its extras is
stopped as well, and quantities of different scale do not mix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragfl.aggregates.robust.contract import ComparesModels, find_shortage, part_name
from dragfl.aggregates.robust.pipeline import apply_parts
from dragfl.arithmetic import row_norms
from dragfl.errors import Infeasible, SpecError
from dragfl.lazy import Tensor
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state


@dataclass(frozen=True)
class RobustPlan:
    context: RoundContext
    per_round: int
    model: Tensor | None = None  # the model sent out, if the rule needs it


def whole_cohort(self: Any, state: Any) -> frozenset[Need]:
    """`needs = whole_cohort`: all updates of the round in one block, and the model for a rule that compares models."""
    if isinstance(self, ComparesModels) and self.uses_model:
        return frozenset({"all", "model"})
    return frozenset({"all"})


def _begin(self: Any, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> RobustPlan:
    return RobustPlan(context, info.per_round, needed_model(self, inputs.model))


def _fold(self: Any, plan: RobustPlan, block: Updates) -> Partial:
    return fold_with((self,), None, plan.context, plan.per_round, block, plan.model)


def _finish(
    self: Any, state: NoState, plan: RobustPlan, partial: Partial
) -> tuple[Tensor, NoState, Mapping[str, float]]:
    return partial.sums["step"].float(), state, {}


def _shortage(self: Any, n: int) -> str | None:
    """Why this rule cannot work on n updates, or None. Asked before a run starts."""
    return find_shortage((self,), n, None)


robust_rule = (no_state, whole_cohort, _begin, _fold, _finish, _shortage, True)


def needed_model(rule: object, model: Tensor | None) -> Tensor | None:
    """The model sent out, for a rule that compares local models; None for the others."""
    if not (isinstance(rule, ComparesModels) and rule.uses_model):
        return None
    if model is None:
        raise SpecError(f"{part_name(rule)} compares local models: it needs the model that was sent out; give model")
    return model


def check_feasible(parts: Sequence[object], f: int | None, per_round: int, block: Updates) -> int:
    """The number of sampled clients without a usable update. Raise if the others are too few for these parts."""
    missing = max(0, per_round - len(block))
    if why := find_shortage(parts, len(block), f, missing):
        raise Infeasible(why)
    return missing


def fold_with(
    parts: Sequence[object],
    f: int | None,
    context: RoundContext,
    per_round: int,
    block: Updates,
    model: Tensor | None = None,
) -> Partial:
    """Fold the whole cohort: the step, every client's norm and suspicion, and the aggregated extras."""
    missing = check_feasible(parts, f, per_round, block)
    names = [part_name(part) for part in parts]

    def aggregate_extra(name: str, rows: Tensor) -> Tensor:
        return apply_parts(parts, rows, row_norms(rows), f, missing, context.rng("robust", *names, name)).step

    draws = context.rng("robust", *names)
    outcome = apply_parts(parts, block.delta, block.norm, f, missing, draws, score=True, model=model)
    per_client = {"norm": block.norm, "suspicion": outcome.suspicion}
    return Partial.of(block, {"step": outcome.step}, per_client, extra=aggregate_extras(block, aggregate_extra))


def aggregate_extras(block: Updates, aggregate: Callable[[str, Tensor], Tensor]) -> dict[str, Tensor]:
    """Every extra, aggregated as a matrix (n, e) and multiplied by n, in float64; `steps` is n times their median.

    Step counts often tie, and a rule that selects rows breaks ties by their order; the median does not.
    """
    n = len(block)
    sums = {"steps": block.steps.double().quantile(0.5) * n}
    for name, value in block.extra.items():
        sums[name] = (aggregate(name, value.reshape(n, -1)).double() * n).reshape(value.shape[1:])
    return sums
