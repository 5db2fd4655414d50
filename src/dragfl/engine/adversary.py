"""Attackers that know more than themselves, and what a round lets them see.

Attackers of knowledge "own" craft in the worker, one at a time. All others craft here, when every clean update of the
round is in; their view holds what their knowledge grants and nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dragfl.engine.aggregation import Sums, Total, fold, mean_update
from dragfl.engine.worker import ClientResults, concat, put_rows
from dragfl.types import Aggregate, FederationInfo, HasReference, RoundContext, RoundInputs, State, Updates, View

if TYPE_CHECKING:
    from dragfl.build import Federation
    from dragfl.engine.round import FederationState


@dataclass(frozen=True)
class Rehearsal:
    """The step of this round if the attackers sent these (f, d) rows: begin, fold and finish on a copy of the state.

    It is made of the very blocks that the round will fold, so what is rehearsed is what will be, bit for bit.
    """

    rule: Aggregate[Any, Any]
    state: State
    context: RoundContext
    root: Tensor | None
    info: FederationInfo
    clean: tuple[ClientResults, ...]
    rows: Tensor  # where the attackers stand in the cohort

    def __call__(self, deltas: Tensor) -> Tensor:
        rule, needs = self.rule, self.rule.needs(self.state)
        everyone = Updates.concat([block.updates for block in self.clean])
        sent = replace(everyone.select(self.rows), delta=deltas.to(everyone.delta.dtype))
        blocks = _dealt(self.clean, put_rows(everyone, self.rows, sent))
        blocks = [concat(blocks)] if "all" in needs else blocks
        mean = mean_update(fold(rule, Total(), block) for block in blocks) if "mean" in needs else None
        if not any(block.usable().any() for block in blocks):
            return everyone.delta.new_zeros(self.info.dim)
        plan = rule.begin(self.state, self.context, RoundInputs(root=self.root, mean=mean), self.info)
        total = Sums(fold(rule, plan, block).partial for block in blocks).partial
        if total is None:  # the round would be skipped
            return everyone.delta.new_zeros(self.info.dim)
        return rule.finish(self.state, plan, total)[0]


def craft_together(
    fed: Federation,
    state: FederationState,
    context: RoundContext,
    root: Tensor | None,
    kept: list[ClientResults],
    attackers: frozenset[int],
) -> tuple[list[ClientResults], State]:
    """(the blocks as they are sent, the attack's next state) for attackers that know more than themselves."""
    attack = fed.experiment.attack
    everyone = Updates.concat([block.updates for block in kept])
    bad = torch.tensor([m in attackers for m in everyone.client.tolist()])
    if attack is None or not bad.any():
        return kept, state.attack
    rows = bad.nonzero().flatten()
    view = View(everyone.select(rows), info=fed.info, w=state.w.clone())  # a copy: a view cannot change a round
    if attack.knowledge in ("omniscient", "white_box"):
        view = replace(view, honest=everyone.select(~bad))
    if attack.knowledge == "white_box":
        rule, memory = fed.algorithm.aggregate, copy.deepcopy(state.aggregate)
        clean = tuple(
            ClientResults(block.updates, (), (), ()) for block in kept
        )  # neither losses nor what clients keep
        trusted = None if root is None else root.clone()
        rehearsal = Rehearsal(rule, memory, context, trusted, fed.info, clean, rows)
        reference = trusted
        if reference is None and isinstance(rule, HasReference):
            reference = rule.reference(memory)
        view = replace(view, aggregate=rehearsal, reference=reference)
    crafted, attack_state = attack.craft(state.attack, view, context)
    return _dealt(kept, put_rows(everyone, rows, crafted)), attack_state


def remember_alone(fed: Federation, state: FederationState, context: RoundContext, attackers: frozenset[int]) -> State:
    """The next state of attackers that know only themselves: of what everyone knows, since they share it."""
    attack = fed.experiment.attack
    if attack is None or not attackers or not fields(state.attack):
        return state.attack
    device = state.w.device
    weight = torch.ones(1, dtype=torch.float64, device=device)
    blank = Updates(torch.zeros_like(state.w).unsqueeze(0), weight, torch.tensor([-1]))
    return attack.craft(state.attack, View(blank, info=fed.info, w=state.w.clone()), context)[1]


def _dealt(kept: Sequence[ClientResults], everyone: Updates) -> list[ClientResults]:
    """The cohort's updates back in their blocks."""
    out, first = [], 0
    for block in kept:
        rows = torch.arange(first, first + len(block.updates))
        out.append(replace(block, updates=everyone.select(rows)))
        first += len(block.updates)
    return out
