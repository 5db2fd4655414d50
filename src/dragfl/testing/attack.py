"""Does an attack keep its contract?"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from dragfl.testing.bench import COHORT, COMMON, Bench, info, updates
from dragfl.testing.values import differ
from dragfl.types import Attack, Knowledge, RoundContext, State, Updates, View

ATTACK: Mapping[str, str] = {
    "runs": "craft runs in every round with what the attack's knowledge grants, also on zero updates",
    "knowledge": "knowledge is one of " + ", ".join(map(repr, get_args(Knowledge))),
    **COMMON,
    "updates": "craft returns Updates: one float32 row for each attacker, with its client id and its honest weight",
    "own": "with knowledge 'own' a row depends on its attacker's own update alone: crafted for one attacker "
    "at a time it has the same bits, and the next state depends on the model sent out and the round alone",
}


CASES = (
    "ordinary updates",
    "zero updates",
    "one attacker",
    "nobody honest",
    "all alike",
    "no reference",
    "ordinary updates",
)


def check_attack(
    attack: Attack[Any], *, dim: int = 12, attackers: int = 3, seed: int = 0, skip: Collection[str] = ()
) -> None:
    """Check an attack against `ATTACK`, in rounds of several kinds.

    >>> from dragfl.attacks import SignFlip
    >>> check_attack(SignFlip())
    """
    bench = Bench(attack, ATTACK, info(dim), seed, frozenset(skip))
    knowledge = bench.call("knowledge", "the part itself")
    if knowledge not in get_args(Knowledge):
        bench.fail("knowledge", f"knowledge is {knowledge!r}")
    bench.piped("the attack", attack)
    state = bench.start()
    for t, case in enumerate(CASES):
        own = updates(bench.rows("own", t, 1 if case == "one attacker" else attackers))
        if case == "zero updates":
            own = dataclasses.replace(own, delta=torch.zeros_like(own.delta))
        state = _attacked_round(bench, state, own, knowledge, bench.context(t), case)


@dataclass(frozen=True)
class MeanOf:
    """A defence to try lies on: the mean of the honest updates and what attackers send."""

    honest: Tensor

    def __call__(self, deltas: Tensor) -> Tensor:
        return torch.cat([self.honest, deltas]).mean(0)


def _view(bench: Bench, own: Updates, knowledge: str, context: RoundContext, case: str) -> View:
    """What the knowledge grants, and nothing else."""
    view = View(own, info=bench.info, w=bench.rows("w", context.t, 1)[0])
    if knowledge in ("omniscient", "white_box"):
        honest = updates(bench.rows("honest", context.t))
        honest = dataclasses.replace(honest, client=torch.arange(50, 50 + COHORT))
        if case == "nobody honest":
            honest = honest.select(torch.zeros(0, dtype=torch.int64))
        elif case == "all alike":
            honest = dataclasses.replace(honest, delta=honest.delta[:1].repeat(COHORT, 1))
        view = dataclasses.replace(view, honest=honest)
    if knowledge == "white_box" and view.honest is not None:
        reference = None if case == "no reference" else bench.rows("reference", context.t, 1)[0]
        view = dataclasses.replace(view, aggregate=MeanOf(view.honest.delta), reference=reference)
    return view


def _attacked_round(
    bench: Bench, state: State, own: Updates, knowledge: str, context: RoundContext, case: str
) -> State:
    """Craft for all attackers; with knowledge 'own' also for each alone."""
    view = _view(bench, own, knowledge, context, case)
    case = f"round {context.t}, {case}"
    sent, after = _craft(bench, state, view, context, case)
    for i in range(len(own) if knowledge == "own" else 0):
        one = dataclasses.replace(view, own=own.select(torch.tensor([i])))
        alone, remembered = _craft(bench, state, one, context, case)
        if seen := differ(after, remembered, "state"):
            bench.fail("own", f"the next {seen} depends on who attacks beside attacker {i} ({case})")
        if differ(sent.delta[i], alone.delta[0], "row"):
            gap = float((sent.delta[i] - alone.delta[0]).abs().max())
            bench.fail("own", f"row {i} of {len(own)} differs by {gap:.3g} from the attacker alone ({case})")
    return after


def _craft(bench: Bench, state: State, view: View, context: RoundContext, case: str) -> tuple[Updates, State]:
    sent, after = bench.answers(2, "craft", case, bench.rebuilt(state), view, context)
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
