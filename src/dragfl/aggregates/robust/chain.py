"""Pre-aggregators one after the other, then any rule: `{chain = ["arc", "nnm", "trimmed_mean"], f = 4}`.

The pre-aggregators become one matrix P on the updates, found from one matrix of dots that serves the whole chain. A
last part with `weights` or `columns` then works on P X without making it: weights are multiplied by P, coordinates
taken in pieces. Any other aggregate is given P X as if the clients had sent it.

Suspicion is that of the last rule: row i of P X speaks for client i, a bucket for all that are in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from dragfl.aggregates.robust.rule import check_count, part_name, shortage_of
from dragfl.errors import Infeasible, SpecError, nearest
from dragfl.types import FederationInfo, Need, Partial, Plan, RoundContext, RoundInputs, State, Updates

if TYPE_CHECKING:
    from torch import Tensor


# The number, the sum and the mean of the rows that the last rule was given.
ROWS, TOTAL, MEAN = "chain.rows", "chain.total", "chain.mean"


@dataclass(frozen=True)
class ChainPlan:
    context: RoundContext
    per_round: int
    last: Plan  # None: the last rule begins with the mean of the rows, which only `fold` knows
    state: State
    root: Tensor | None
    info: FederationInfo


@dataclass(frozen=True)
class Chain:
    """Pre-aggregators (`arc`, `nnm`, `bucketing`) before any rule.

    | argument | symbol |
    |---|---|
    | chain | names of the parts, or tables of a name and settings; the last one is the rule |
    | f | f of every part that is not given its own; by default the expected number of attackers in a cohort |
    """

    chain: tuple[Any, ...] = ("nnm", "trimmed_mean")
    f: int | None = None
    name: ClassVar[str] = "chain"

    def __post_init__(self) -> None:
        check_count("chain", "f", self.f)
        if not self.chain:
            raise SpecError('chain: it is empty; give names such as ["nnm", "trimmed_mean"]')
        object.__setattr__(self, "chain", tuple(_described(part) for part in self.chain))
        for part in self.parts[:-1]:
            if not hasattr(part, "matrix") or hasattr(part, "columns"):
                known = ", ".join(_registries()[0])
                raise SpecError(
                    f"chain: {part_name(part)} is no pre-aggregator, so it comes last; before it stand {known}"
                )
        if not hasattr(self.parts[-1], "fold"):
            raise SpecError(
                f"chain: {part_name(self.parts[-1])} is a pre-aggregator; name a rule such as median after it"
            )

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        made = tuple(_made(part) for part in self.chain)
        last = made[-1]
        if getattr(last, "f", 0) is None:  # a rule that works by itself asks itself for f
            last = dataclasses.replace(last, f=self.f)
        return (*made[:-1], last)

    def init(self, info: FederationInfo) -> State:
        return self.parts[-1].init(info)

    def needs(self, state: State) -> frozenset[Need]:
        asked: frozenset[Need] = self.parts[-1].needs(state)
        return (asked - {"mean"}) | {"all"}

    def begin(self, state: State, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> Plan:
        waits = "mean" in self.parts[-1].needs(state)
        last = None if waits else self.parts[-1].begin(state, context, inputs, info)
        return ChainPlan(context, info.per_round, last, state, inputs.root, info)

    def _begun(self, plan: ChainPlan, mean: Tensor | None) -> Plan:
        """The plan of the last rule; where it asks for the mean, that is the mean of P X and not of what was sent."""
        if plan.last is not None or mean is None:
            return plan.last
        return self.parts[-1].begin(plan.state, plan.context, RoundInputs(root=plan.root, mean=mean), plan.info)

    def fold(self, plan: Plan, block: Updates) -> Partial:
        from dragfl.aggregates.robust.pipeline import apply

        lost = max(0, plan.per_round - len(block))
        if why := shortage_of(self.parts, len(block), self.f, lost):
            raise Infeasible(why)
        rng = plan.context.rng("robust", *(part_name(part) for part in self.parts))
        last = self.parts[-1]
        if not (hasattr(last, "weights") or hasattr(last, "columns")):
            return self._fold_rows(plan, block, lost, rng)
        outcome = apply(self.parts, block.delta, block.norm, self.f, lost, rng, score=True)
        return Partial.of(block, {"step": outcome.step}, {"norm": block.norm, "suspicion": outcome.suspicion})

    def _fold_rows(self, plan: Plan, block: Updates, lost: int, rng: Any) -> Partial:
        """The last aggregate on P X, as if it were what the clients had sent."""
        import torch

        from dragfl.aggregates.robust.pipeline import by_client, made, rows_of

        gram = rows_of(self.parts[:-1], block.delta, block.norm, self.f, lost, rng)
        n = len(gram)
        one_each = gram.members is None  # a row for every client, as after NNM; buckets are nobody's own
        weight = block.weight if gram.members is None else gram.members.ne(0).to(block.weight) @ block.weight
        client = block.client if one_each else torch.arange(n)
        rows = Updates(made(gram), weight, client, {}, block.steps if one_each else None)
        mean = rows.delta.mean(0)
        folded: Partial = self.parts[-1].fold(self._begun(plan, mean), rows)
        columns = {name: by_client(column, gram) for name, column in folded.per_client.items()}
        sums = {**folded.sums, ROWS: torch.tensor(float(n)), TOTAL: folded.total, MEAN: mean}
        return Partial.of(block, sums, {**columns, "norm": block.norm})

    def finish(self, state: State, plan: Plan, partial: Partial) -> tuple[Tensor, State, Mapping[str, float]]:
        mean = None
        if ROWS in partial.sums:
            sums = dict(partial.sums)
            count, total, mean = int(sums.pop(ROWS)), sums.pop(TOTAL), sums.pop(MEAN)
            partial = Partial(count, total, sums, partial.per_client)
        return self.parts[-1].finish(state, self._begun(plan, mean), partial)  # type: ignore[no-any-return]

    def shortage(self, n: int) -> str | None:
        """Why this chain cannot work on n updates, or None: asked before a run starts."""
        return shortage_of(self.parts, n, self.f)


def chain(*parts: Any, f: int | None = None) -> Chain:
    """A chain of parts: names, tables, or the objects themselves, as in chain(NNM(), TrimmedMean(), f=4)."""
    return Chain(parts, f)


def _registries() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(pre-aggregators, rules) by name."""
    from dragfl.aggregates import AGGREGATES
    from dragfl.aggregates.robust import PREAGGREGATORS

    return PREAGGREGATORS, {name: rule for name, rule in AGGREGATES.items() if name != "chain"}


def _described(part: Any) -> Any:
    """A part as a spec writes it: its name, or a table of name and settings."""
    if isinstance(part, str | Mapping):
        return part
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        raise SpecError(f"chain: {part!r} is no part; give a name, a table with a name, or the part itself")
    before, rules = _registries()
    names = {kind: name for name, kind in {**before, **rules}.items()}
    name = names.get(type(part), f"{type(part).__module__}:{type(part).__qualname__}")
    inputs = {
        field.name: value
        for field in dataclasses.fields(part)
        if (value := getattr(part, field.name)) is not None and value != field.default
    }
    return {"name": name, **inputs} if inputs else name


def _made(inputs: Any) -> Any:
    """The part that a name or a table stands for."""
    table = {"name": inputs} if isinstance(inputs, str) else dict(inputs)
    name = table.pop("name", None)
    before, rules = _registries()
    known = {**before, **rules}
    if isinstance(name, str) and ":" in name:
        module, _, attribute = name.partition(":")
        kind = getattr(import_module(module), attribute)
    elif name in known:
        kind = known[name]
    else:
        raise SpecError(f"chain: unknown part {name!r}{nearest(str(name), known)}")
    try:
        return kind(**table)
    except TypeError:
        settings = [field.name for field in dataclasses.fields(kind)]
        stray = next((key for key in table if key not in settings), "")
        raise SpecError(f"chain: {name} has no setting '{stray}'{nearest(stray, settings)}") from None
