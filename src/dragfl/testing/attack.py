"""Check the contract of an attack."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from dragfl.errors import PartError
from dragfl.testing.checker import COHORT, COMMON, Checker, federation_info, make_updates
from dragfl.testing.compare import different_bits
from dragfl.types import Attack, Knowledge, RoundContext, State, Updates, View

ATTACK: Mapping[str, str] = {
    "runs": "craft runs in every round with the fields that the attack's knowledge grants, also on zero updates",
    "knowledge": "knowledge is one of " + ", ".join(map(repr, get_args(Knowledge))),
    **COMMON,
    "updates": "craft returns Updates: one float32 row per attacker, with its client id and its honest weight",
    "own": "with knowledge 'own' a row depends only on the attacker's own update: crafted for one attacker at a time "
    "it has the same bits, and the next state depends only on the model sent out and the round",
}
CASES = (
    "ordinary updates",
    "zero updates",
    "one attacker",
    "no honest client",
    "identical updates",
    "no reference",
    "ordinary updates",
)


def check_attack(
    attack: Attack[Any], *, dim: int = 12, attackers: int = 3, seed: int = 0, skip: Collection[str] = ()
) -> None:
    """Check an attack against `ATTACK`, in several kinds of rounds.

    >>> from dragfl.attacks import SignFlip
    >>> check_attack(SignFlip())
    """
    checker = Checker(attack, ATTACK, federation_info(dim), seed, frozenset(skip))
    knowledge = checker.call("knowledge", "the part itself")
    if knowledge not in get_args(Knowledge):
        checker.fail("knowledge", f"knowledge is {knowledge!r}")
    checker.send_to_worker("the attack", attack)
    state = checker.initial_state()
    for t, case in enumerate(CASES):
        own = make_updates(checker.draw_rows("own", t, 1 if case == "one attacker" else attackers))
        if case == "zero updates":
            own = dataclasses.replace(own, delta=torch.zeros_like(own.delta))
        state = _attacked_round(checker, state, own, knowledge, checker.context(t), case)


@dataclass(frozen=True)
class MeanOf:
    """A defence for white-box attacks: the mean of the honest and malicious updates."""

    honest: Tensor

    def __call__(self, deltas: Tensor) -> Tensor:
        return torch.cat([self.honest, deltas]).mean(0)


def _view(checker: Checker, own: Updates, knowledge: str, context: RoundContext, case: str) -> View:
    """The view that the knowledge grants."""
    view = View(own, info=checker.info, w=checker.draw_rows("w", context.t, 1)[0])
    if knowledge not in ("omniscient", "white_box"):
        return view
    rows = checker.draw_rows("honest", context.t, 0 if case == "no honest client" else COHORT)
    rows = rows[:1].repeat(COHORT, 1) if case == "identical updates" else rows
    honest = dataclasses.replace(make_updates(rows), client=50 + torch.arange(len(rows)))
    view = dataclasses.replace(view, honest=honest)
    if knowledge == "omniscient":
        return view
    reference = None if case == "no reference" else checker.draw_rows("reference", context.t, 1)[0]
    return dataclasses.replace(view, aggregate=MeanOf(rows), reference=reference)


def _attacked_round(
    checker: Checker, state: State, own: Updates, knowledge: str, context: RoundContext, case: str
) -> State:
    """Craft for all attackers; with knowledge 'own' also for each attacker separately."""
    view = _view(checker, own, knowledge, context, case)
    case = f"round {context.t}, {case}"
    crafted, after = _craft(checker, state, view, context, case)
    for i in range(len(own) if knowledge == "own" else 0):
        one = dataclasses.replace(view, own=own.select(torch.tensor([i])))
        alone, after_alone = _craft(checker, state, one, context, case)
        if seen := different_bits(after, after_alone, "state"):
            checker.fail("own", f"the next {seen} depends on the attackers other than {i} ({case})")
        if different_bits(crafted.delta[i], alone.delta[0], "row"):
            gap = float((crafted.delta[i] - alone.delta[0]).abs().max())
            checker.fail("own", f"row {i} of {len(own)} differs by {gap:.3g} from the row crafted separately ({case})")
    return after


def _craft(checker: Checker, state: State, view: View, context: RoundContext, case: str) -> tuple[Updates, State]:
    try:
        sent, after = checker.call_tuple(2, "craft", case, checker.rebuild_state(state), view, context)
    except PartError as error:  # what a function returned
        checker.fail_call("craft", case, error)
    if not isinstance(sent, Updates):
        checker.fail_call("craft", case, TypeError(f"it returned a {type(sent).__name__}, not Updates"))
    clean = view.own
    if sent.delta.shape != clean.delta.shape or sent.delta.dtype != torch.float32:
        shapes = f"{tuple(sent.delta.shape)} for clean updates of {tuple(clean.delta.shape)}"
        checker.fail("updates", f"delta is {sent.delta.dtype} {shapes} ({case})")
    for name in ("client", "weight"):
        seen, expected = getattr(sent, name).tolist(), getattr(clean, name).tolist()
        if seen != expected:
            checker.fail("updates", f"{name} is {seen}, expected {expected} ({case})")
    return sent, checker.check_state(after, "craft")
