"""A plain function as an aggregate: `(updates) -> step`, or `(updates, root) -> step` with trusted root data.

    def middle(updates):            # (n, d) float32 tensor in, (d,) tensor or numpy array out
        return (updates.amin(0) + updates.amax(0)) / 2

The first parameter is the updates, whatever its name; a parameter named `root` is the update of the root data; the
others are settings. A parameter `f` without a value is the assumed number of attackers, as for the built-in robust
rules. A parameter annotated as a numpy array gets one. A client's suspicion is its distance from the step. The extras
of a correction pass through the same function, each separately; a function of the root data cannot do that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dragfl.aggregates.robust.contract import assumed_f, check_count, find_shortage, majority
from dragfl.aggregates.robust.rule import aggregate_extras, check_feasible
from dragfl.arithmetic import row_norms
from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch
from dragfl.own_code import as_annotated, checked_tensor, name_of, named_errors, parameters_of, settings_of
from dragfl.types import FederationInfo, Need, NoState, Partial, RoundContext, RoundInputs, Updates, no_state

ROOT, F = "root", "f"
FORM = "a rule is a function (updates) or (updates, root) of which the other parameters are settings"


@dataclass(frozen=True)
class FunctionPlan:
    root: Tensor | None
    per_round: int


def function_rule(
    where: str, function: Any, settings: Mapping[str, Any], name: str = ""
) -> FunctionRule | FunctionRuleWithF:
    """The aggregate of a function and its settings; `name` is the `module:attr` it was found under."""
    parameters, name = parameters_of(where, function), name or name_of(function)
    first = next(iter(parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise SpecError(f"{where}: {name} takes no updates; {FORM}")
    settings, f = dict(settings), parameters.get(F)
    if f is None or f.default not in (None, f.empty):
        return FunctionRule(function, name, settings_of(where, function, (first.name, ROOT), settings, FORM))
    number = settings.pop(F, None)
    check_count(where, F, number)
    settings = settings_of(where, function, (first.name, ROOT, F), settings, FORM)
    return FunctionRuleWithF(function, name, settings, number)


def _trusted(self: Any) -> bool:
    return ROOT in parameters_of("aggregate", self.function)


def _aggregates_extras(self: Any) -> bool:
    return not self.trusted


def _needs(self: Any, state: NoState) -> frozenset[Need]:
    return frozenset({"all", "root"}) if self.trusted else frozenset({"all"})


def _begin(self: Any, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> FunctionPlan:
    return FunctionPlan(inputs.root if self.trusted else None, info.per_round)


def _fold(self: Any, plan: FunctionPlan, block: Updates) -> Partial:
    settings = dict(self.settings)
    if isinstance(self, FunctionRuleWithF):
        settings[F] = assumed_f(self, None, check_feasible((self,), None, plan.per_round, block))
    if self.trusted:
        settings[ROOT] = as_annotated(self.function, ROOT, None if plan.root is None else plan.root.clone())
    step = call_rule(self, block.delta, settings)
    distance = torch.cat([row_norms(row[None] - step) for row in block.delta])  # a row at a time, to save memory
    per_client = {"norm": block.norm, "suspicion": distance}
    extra = None if self.trusted else aggregate_extras(block, lambda _, rows: call_rule(self, rows, settings))
    return Partial.of(block, {"step": step}, per_client, extra=extra)


def call_rule(rule: FunctionRule | FunctionRuleWithF, rows: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """The checked step of the function, which gets a copy: `np.asarray(updates)` would let it change the round."""
    first = next(iter(parameters_of("aggregate", rule.function)))
    with named_errors(rule.name):
        step = rule.function(as_annotated(rule.function, first, rows.clone()), **settings)
    return checked_tensor(f"the step of {rule.name}", step, (rows.shape[1],), rows.device)


def _finish(
    self: Any, state: NoState, plan: FunctionPlan, partial: Partial
) -> tuple[Tensor, NoState, Mapping[str, float]]:
    return partial.sums["step"].float(), state, {}


def _shortage(self: Any, n: int) -> str | None:
    """Why the rule cannot work on n updates: more than half of them must be honest."""
    return find_shortage((self,), n, None)


def _described(self: Any) -> tuple[str, dict[str, Any]]:
    """(name, settings) in a spec."""
    number = {F: self.f} if isinstance(self, FunctionRuleWithF) and self.f is not None else {}
    return self.name, {**self.settings, **number}


@dataclass(frozen=True)
class FunctionRule:
    """An aggregate made of a function."""

    function: Any
    name: str  # `module:attr`
    settings: Mapping[str, Any] = field(default_factory=dict)

    init, needs, begin, fold, finish, described = no_state, _needs, _begin, _fold, _finish, _described
    trusted, aggregates_extras = property(_trusted), property(_aggregates_extras)


@dataclass(frozen=True)
class FunctionRuleWithF:
    """An aggregate made of a function with a parameter `f`, the assumed number of attackers."""

    function: Any
    name: str  # `module:attr`
    settings: Mapping[str, Any] = field(default_factory=dict)
    f: int | None = None

    least, shortage = majority, _shortage
    init, needs, begin, fold, finish, described = no_state, _needs, _begin, _fold, _finish, _described
    trusted, aggregates_extras = property(_trusted), property(_aggregates_extras)
