"""Pre-aggregators in sequence, then any rule: `{chain = ["arc", "nnm", "trimmed_mean"], f = 4}`.

The pre-aggregators become one matrix P on the updates, computed from one matrix of dots that serves the whole chain. A
last part with `weights` or `columns` works on P X without building it: weights are multiplied by P, coordinates are
processed in pieces. Any other aggregate receives P X as if the clients had sent it.

Suspicion is that of the last rule: client i has the score of row i of P X, the members of a bucket share its score.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dragfl.aggregates.robust.contract import (
    ColumnRule,
    HasF,
    TransformsRows,
    WeightRule,
    check_count,
    find_shortage,
    part_name,
)
from dragfl.aggregates.robust.coordinate_wise import TrimmedMean
from dragfl.aggregates.robust.pipeline import by_client, rows_of, transform_rows
from dragfl.aggregates.robust.preaggregation import NNM
from dragfl.aggregates.robust.rule import check_feasible, fold_with, needed_model
from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch
from dragfl.types import DirectionSettings, FederationInfo, Need, Partial, RoundContext, RoundInputs, Updates

# Sums that carry the number, the sum and the mean of the rows P X to `finish`.
ROWS, TOTAL, MEAN = "chain.rows", "chain.total", "chain.mean"

LastState = Any  # the state of the last rule, whichever it is
LastPlan = Any


@dataclass(frozen=True)
class ChainPlan:
    context: RoundContext
    per_round: int
    last: LastPlan  # None: the last rule needs the mean of the rows, which is known in `fold`
    state: LastState
    inputs: RoundInputs
    info: FederationInfo


@dataclass(frozen=True)
class Chain:
    """Applies pre-aggregators (`arc`, `nnm`, `bucketing`), then any rule.

    | argument | symbol |
    |---|---|
    | chain | the parts; the last one is the rule. A spec gives names, or tables of a name and settings |
    | f | f of every part without its own; its default is that of a rule |
    """

    chain: tuple[Any, ...] = (NNM(), TrimmedMean())
    f: int | None = None
    name: ClassVar[str] = "chain"

    def __post_init__(self) -> None:
        check_count("chain", "f", self.f)
        if not self.chain:
            raise SpecError('chain: it is empty; give names such as ["nnm", "trimmed_mean"]')
        object.__setattr__(self, "chain", tuple(self.chain))
        for part in self.chain:
            if not dataclasses.is_dataclass(part) or isinstance(part, type):
                raise SpecError(f"chain: {part!r} is no part; give a name, a table with a name, or the part itself")
        for part in self.chain[:-1]:
            if not isinstance(part, TransformsRows) or isinstance(part, ColumnRule):
                raise SpecError(
                    f"chain: {part_name(part)} is no pre-aggregator, so it comes last; "
                    "the pre-aggregators are nnm, bucketing and arc"
                )
        if not hasattr(self.chain[-1], "fold"):
            raise SpecError(
                f"chain: {part_name(self.chain[-1])} is a pre-aggregator; name a rule such as median after it"
            )

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """The parts, the last rule with the f of the chain if it has none of its own."""
        last = self.chain[-1]
        takes_f = isinstance(last, HasF) and last.f is None
        return (*self.chain[:-1], dataclasses.replace(last, f=self.f) if takes_f else last)

    @property
    def aggregates_extras(self) -> bool:
        """Whether extras pass through the whole chain: only if the last rule has `weights` or `columns`."""
        return isinstance(self.parts[-1], WeightRule | ColumnRule)

    @property
    def direction_settings(self) -> DirectionSettings:
        """Of the last rule, where it uses directions."""
        settings: DirectionSettings = self.parts[-1].direction_settings
        return settings

    def init(self, info: FederationInfo) -> LastState:
        return self.parts[-1].init(info)

    def needs(self, state: LastState) -> frozenset[Need]:
        asked: frozenset[Need] = self.parts[-1].needs(state)
        return (asked - {"mean"}) | {"all"}

    def begin(self, state: LastState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> ChainPlan:
        needs_mean = "mean" in self.parts[-1].needs(state)
        last = None if needs_mean else self.parts[-1].begin(state, context, inputs, info)
        return ChainPlan(context, info.per_round, last, state, inputs, info)

    def fold(self, plan: ChainPlan, block: Updates) -> Partial:
        if self.aggregates_extras:
            model = needed_model(self.parts[-1], plan.inputs.model)
            return fold_with(self.parts, self.f, plan.context, plan.per_round, block, model)
        return self._fold_rows(plan, block)

    def _fold_rows(self, plan: ChainPlan, block: Updates) -> Partial:
        """The last aggregate on P X, as if the clients had sent it."""
        missing = check_feasible(self.parts, self.f, plan.per_round, block)
        rng = plan.context.rng("robust", *(part_name(part) for part in self.parts))
        gram = transform_rows(self.parts[:-1], block.delta, block.norm, self.f, missing, rng)
        if gram.members is None:  # one row for each client, as after NNM
            rows = Updates(rows_of(gram), block.weight, block.client, {}, block.steps)
        else:
            weight = gram.members.ne(0).to(block.weight) @ block.weight
            rows = Updates(rows_of(gram), weight, torch.arange(len(gram)))
        mean = rows.delta.mean(0)
        folded: Partial = self.parts[-1].fold(self._last_plan(plan, mean), rows)
        columns = {name: by_client(column, gram) for name, column in folded.per_client.items()}
        sums = {**folded.sums, ROWS: torch.tensor(float(len(gram))), TOTAL: folded.total, MEAN: mean}
        return Partial.of(block, sums, {**columns, "norm": block.norm})

    def _last_plan(self, plan: ChainPlan, mean: Tensor | None) -> LastPlan:
        """The plan of the last rule. If it needs the mean, that is the mean of P X, not of the updates."""
        if plan.last is not None or mean is None:
            return plan.last
        inputs = dataclasses.replace(plan.inputs, mean=mean)
        return self.parts[-1].begin(plan.state, plan.context, inputs, plan.info)

    def finish(
        self, state: LastState, plan: ChainPlan, partial: Partial
    ) -> tuple[Tensor, LastState, Mapping[str, float]]:
        mean = None
        if ROWS in partial.sums:
            sums = dict(partial.sums)
            count, total, mean = int(sums.pop(ROWS)), sums.pop(TOTAL), sums.pop(MEAN)
            partial = dataclasses.replace(partial, count=count, total=total, sums=sums)
        step, state, metrics = self.parts[-1].finish(state, self._last_plan(plan, mean), partial)
        return step, state, metrics

    def shortage(self, n: int) -> str | None:
        """Why this chain cannot work on n updates, or None. Asked before a run starts."""
        return find_shortage(self.parts, n, self.f)
