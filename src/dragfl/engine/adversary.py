"""Malicious clients: which clients attack in a round, what their attack may see, and what they send.

Attackers with knowledge "own" craft in the worker, one at a time. All others craft here, when every clean update of the
round has arrived. A view holds what the attack's knowledge grants and nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from dragfl.engine import calls
from dragfl.engine.aggregation import Sums, Total, fold, mean_update
from dragfl.engine.client import ClientResults, TrainTask, concat
from dragfl.errors import SpecError
from dragfl.types import (
    Aggregate,
    Attack,
    FederationInfo,
    HasReference,
    RoundContext,
    RoundInputs,
    State,
    Updates,
    View,
)


@dataclass(frozen=True)
class Adversary:
    """An attack and the clients that carry it out."""

    attack: Attack[Any]
    count: int  # attackers drawn, among all clients or among the sampled
    among_sampled: bool
    redraw: bool  # draw them again in every round
    fixed: frozenset[int]  # the attackers of the whole run, unless redrawn
    forge_extras: bool  # send forged extras too: the attack applied to each extra as if it were the update

    @property
    def joint(self) -> bool:
        """Whether attackers know more than their own update."""
        return self.attack.knowledge != "own"

    def active(self, context: RoundContext, cohort: tuple[int, ...], clients: int) -> frozenset[int]:
        """The attackers among the sampled clients of this round."""
        if not self.redraw:
            return self.fixed.intersection(cohort)
        pool = cohort if self.among_sampled else range(clients)
        drawn = context.rng("attackers").choice(len(pool), self.count, replace=False)
        return frozenset(pool[i] for i in drawn).intersection(cohort)


@dataclass(frozen=True)
class Defence:
    """What a white-box attack knows of the server: the rule, its state and the inputs that the rule needs."""

    rule: Aggregate[Any, Any]
    state: State
    inputs: RoundInputs


@dataclass(frozen=True)
class Rehearsal:
    """The step of this round if the attackers sent these (f, d) rows: begin, fold and finish on a copy of the state.

    It uses the blocks that the round will fold, so the rehearsed step equals the real one bit for bit.
    """

    defence: Defence
    context: RoundContext
    info: FederationInfo
    clean: tuple[ClientResults, ...]
    rows: Tensor  # positions of the attackers in the cohort

    def __call__(self, deltas: Tensor) -> Tensor:
        rule, state = self.defence.rule, self.defence.state
        needs = calls.needs(rule, state)
        everyone = Updates.concat([block.updates for block in self.clean])
        sent = replace(everyone.select(self.rows), delta=deltas.to(everyone.delta.dtype))
        blocks = _in_blocks(self.clean, put_rows(everyone, self.rows, sent))
        blocks = [concat(blocks)] if "all" in needs else blocks
        mean = mean_update(fold(rule, Total(), block) for block in blocks) if "mean" in needs else None
        if not any(block.usable().any() for block in blocks):
            return everyone.delta.new_zeros(self.info.dim)
        inputs = replace(self.defence.inputs, mean=mean)
        info = replace(self.info, per_round=len(everyone)) if "all" in needs else self.info
        plan = calls.begin(rule, state, self.context, inputs, info)
        total = Sums(fold(rule, plan, block).partial for block in blocks).partial
        if total is None:  # the round would be skipped
            return everyone.delta.new_zeros(self.info.dim)
        return calls.finish(rule, state, plan, total)[0]


def craft_jointly(
    adversary: Adversary,
    attack_state: State,
    blocks: list[ClientResults],
    attackers: frozenset[int],
    defence: Defence,
    w: Tensor,
    info: FederationInfo,
    context: RoundContext,
) -> tuple[list[ClientResults], State]:
    """(the blocks as they are sent, the attack's next state) for attackers that know more than themselves."""
    attack = adversary.attack
    everyone = Updates.concat([block.updates for block in blocks])
    bad = torch.tensor([m in attackers for m in everyone.client.tolist()])
    if not bad.any():
        return blocks, attack_state
    rows = bad.nonzero().flatten()
    view = View(everyone.select(rows), info=info, w=w.clone())  # a copy: a view cannot change the round
    if attack.knowledge in ("omniscient", "white_box"):
        view = replace(view, honest=everyone.select(~bad))
    if attack.knowledge == "white_box":
        inputs = copy.deepcopy(defence.inputs)  # an attack may write into what it sees
        defence = replace(defence, state=copy.deepcopy(defence.state), inputs=inputs)
        clean = tuple(ClientResults(block.updates, (), (), ()) for block in blocks)  # neither losses nor client states
        reference = inputs.root
        if reference is None and isinstance(defence.rule, HasReference):
            reference = calls.reference(defence.rule, defence.state, info.dim)
        view = replace(view, aggregate=Rehearsal(defence, context, info, clean, rows), reference=reference)
        view = replace(view, directions=inputs.directions)
    crafted, next_state = calls.craft(attack, attack_state, view, context)
    if adversary.forge_extras:
        crafted = replace(crafted, extra=_forged_extras(attack, attack_state, view, context))
    return _in_blocks(blocks, put_rows(everyone, rows, crafted)), next_state


def _forged_extras(attack: Attack[Any], state: State, view: View, context: RoundContext) -> dict[str, Tensor]:
    """Each extra of the model's length as the attack would make it if it were the update; the others unchanged."""
    forged = dict(view.own.extra)
    for name, own in view.own.extra.items():
        if own.shape != view.own.delta.shape:
            continue
        honest = None if view.honest is None else _as_update(view.honest, name)
        seen = replace(view, own=_as_update(view.own, name), honest=honest)
        forged[name] = calls.craft(attack, state, seen, context)[0].delta.to(own.dtype)
    return forged


def _as_update(updates: Updates, extra: str) -> Updates:
    return replace(updates, delta=updates.extra[extra], extra={})


def craft_alone(
    attack: Attack[Any] | None, task: TrainTask, updates: Updates, info: FederationInfo, forge_extras: bool
) -> Updates:
    """The block as sent, where attackers know only their own update. Each crafts without seeing the others."""
    rows = [i for i, m in enumerate(task.clients) if m in task.attackers]
    if attack is None or not rows:
        return updates
    crafted = []
    for i in rows:
        view = View(updates.select(torch.tensor([i])), info=info, w=task.w.clone())
        sent = calls.craft(attack, task.attack_state, view, task.context)[0]
        forged = _forged_extras(attack, task.attack_state, view, task.context) if forge_extras else sent.extra
        crafted.append(replace(sent, extra=forged))
    return put_rows(updates, torch.tensor(rows), Updates.concat(crafted))


def next_state_alone(
    attack: Attack[Any], attack_state: State, w: Tensor, info: FederationInfo, context: RoundContext
) -> State:
    """The next state of attackers that know only themselves: a function of what every client knows."""
    if not fields(attack_state):
        return attack_state
    weight = torch.ones(1, dtype=torch.float64, device=w.device)
    zero = Updates(torch.zeros_like(w).unsqueeze(0), weight, torch.tensor([-1]))
    return calls.craft(attack, attack_state, View(zero, info=info, w=w.clone()), context)[1]


def put_rows(updates: Updates, index: Tensor, crafted: Updates) -> Updates:
    """The updates with some rows replaced by what attackers send."""
    expected = (len(index), updates.delta.shape[1])
    if tuple(crafted.delta.shape) != expected or crafted.extra.keys() != updates.extra.keys():
        raise SpecError(
            f"attack: crafted updates of shape {tuple(crafted.delta.shape)} with extras {sorted(crafted.extra)}; "
            f"return shape {expected} with extras {sorted(updates.extra)}, as in view.own"
        )
    delta, weight = updates.delta.clone(), updates.weight.clone()
    delta[index], weight[index] = crafted.delta, crafted.weight
    extra = {name: value.clone() for name, value in updates.extra.items()}
    for name, value in extra.items():
        value[index] = crafted.extra[name]
    return replace(updates, delta=delta, weight=weight, extra=extra)


def _in_blocks(blocks: Sequence[ClientResults], everyone: Updates) -> list[ClientResults]:
    """The cohort's updates divided into the same blocks."""
    out, first = [], 0
    for block in blocks:
        rows = torch.arange(first, first + len(block.updates))
        out.append(replace(block, updates=everyone.select(rows)))
        first += len(block.updates)
    return out
