"""Does an attack keep its contract?"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import get_args

import torch

from dragfl.testing.bench import COHORT, COMMON, Bench, setting, updates
from dragfl.testing.values import differ
from dragfl.types import Attack, Knowledge, Now, State, Updates, View

ATTACK: Mapping[str, str] = {
    "runs": "craft runs in every round with what the attack's knowledge grants, also on zero updates",
    "knowledge": "knowledge is one of " + ", ".join(map(repr, get_args(Knowledge))),
    **COMMON,
    "updates": "craft returns Updates: one float32 row for each attacker, with its client id and its honest weight",
    "own": "with knowledge 'own' a row depends on its attacker's own update alone: crafted for one attacker "
    "at a time it has the same bits",
}


def check_attack(
    attack: Attack, *, dim: int = 12, attackers: int = 3, seed: int = 0, skip: Collection[str] = ()
) -> None:
    """Check an attack against `ATTACK`, in four rounds.

    >>> from dragfl.attacks import SignFlip
    >>> check_attack(SignFlip())
    """
    bench = Bench(attack, ATTACK, setting(dim), seed, frozenset(skip))
    knowledge = bench.call("knowledge", "the part itself")
    if knowledge not in get_args(Knowledge):
        bench.fail("knowledge", f"knowledge is {knowledge!r}")
    bench.piped("the attack", attack)
    state = bench.start()
    for t, case in enumerate(("ordinary updates", "zero updates", "one attacker", "ordinary updates")):
        own = updates(bench.rows("own", t, 1 if case == "one attacker" else attackers))
        if case == "zero updates":
            own = dataclasses.replace(own, delta=torch.zeros_like(own.delta))
        state = _attacked_round(bench, state, own, knowledge, bench.now(t), f"round {t}, {case}")


def _attacked_round(bench: Bench, state: State, own: Updates, knowledge: str, now: Now, case: str) -> State:
    """Craft for all attackers; with knowledge 'own' also for each alone."""
    honest = updates(bench.rows("honest", now.t)) if knowledge == "omniscient" else None
    if honest is not None:
        honest = dataclasses.replace(honest, client=torch.arange(50, 50 + COHORT))
    sent, after = _craft(bench, state, View(own, honest, bench.setting), now, case)
    for i in range(len(own) if knowledge == "own" else 0):
        alone, _ = _craft(bench, state, View(own.select(torch.tensor([i])), None, bench.setting), now, case)
        if differ(sent.delta[i], alone.delta[0], "row"):
            gap = float((sent.delta[i] - alone.delta[0]).abs().max())
            bench.fail("own", f"row {i} of {len(own)} differs by {gap:.3g} from the attacker alone ({case})")
    return after


def _craft(bench: Bench, state: State, view: View, now: Now, case: str) -> tuple[Updates, State]:
    sent, after = bench.answers(2, "craft", case, bench.rebuilt(state), view, now)
    if not isinstance(sent, Updates):
        bench.crash("craft", case, TypeError(f"it returned a {type(sent).__name__}, not Updates"))
    due = view.own
    if sent.delta.shape != due.delta.shape or sent.delta.dtype != torch.float32:
        shapes = f"{tuple(sent.delta.shape)} for clean updates of {tuple(due.delta.shape)}"
        bench.fail("updates", f"delta is {sent.delta.dtype} {shapes} ({case})")
    for name in ("client", "weight"):
        seen, honest = getattr(sent, name).tolist(), getattr(due, name).tolist()
        if seen != honest:
            bench.fail("updates", f"{name} is {seen} and should be {honest} ({case})")
    return sent, bench.state(after, "craft")
