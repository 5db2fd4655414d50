"""A plain function as an attack: `(own, honest, rng) -> sent`.

    def opposite(own, honest, rng, scale=1.0):      # (f, d), (h, d), numpy Generator -> (f, d)
        return (-scale * honest.mean(0)).expand_as(own)

`own` has the attackers' clean updates, `honest` the honest ones of the round, `rng` the generator of the round.
Parameters are recognised by their names; `honest` and `rng` may be left out. All others are settings. With `honest`
the attack is omniscient, else the attackers collude. In a round without honest clients an omniscient attack sends the
clean updates. What is sent need not be finite: the server drops rows that are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dragfl.errors import SpecError
from dragfl.own_code import as_annotated, checked_tensor, name_of, named_errors, parameters_of, settings_of
from dragfl.types import Knowledge, NoState, RoundContext, Updates, View, no_state

INPUTS = ("own", "honest", "rng")
FORM = "an attack is a function (own, honest, rng) of which the other parameters are settings"


def function_attack(where: str, function: Any, settings: Mapping[str, Any], name: str = "") -> FunctionAttack:
    """The attack of a function and its settings; `name` is the `module:attr` it was found under."""
    name = name or name_of(function)
    if "own" not in parameters_of(where, function):
        raise SpecError(f"{where}: {name} has no parameter 'own'; {FORM}")
    return FunctionAttack(function, name, settings_of(where, function, INPUTS, settings, FORM))


@dataclass(frozen=True)
class FunctionAttack:
    """An attack made of a function."""

    function: Any
    name: str  # `module:attr`
    settings: Mapping[str, Any] = field(default_factory=dict)
    init = no_state

    @property
    def knowledge(self) -> Knowledge:
        return "omniscient" if "honest" in parameters_of("attack", self.function) else "colluding"

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        if view.honest is not None and not len(view.honest):
            return view.own, state
        own = view.own.delta
        inputs: dict[str, Any] = {"own": own.clone(), "rng": context.rng("attack")}
        if view.honest is not None:
            inputs["honest"] = view.honest.delta.clone()
        taken = [name for name in parameters_of("attack", self.function) if name in inputs]
        arguments = {name: as_annotated(self.function, name, inputs[name]) for name in taken}
        with named_errors(self.name):
            sent = self.function(**arguments, **self.settings)
        what = f"what {self.name} sends"
        delta = checked_tensor(what, sent, tuple(own.shape), own.device, finite=False).contiguous()
        return replace(view.own, delta=delta), state

    def described(self) -> tuple[str, dict[str, Any]]:
        """(name, settings) in a spec."""
        return self.name, dict(self.settings)
