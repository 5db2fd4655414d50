"""check_attack passes attacks that keep their contract and catches, by name, those that do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from dragfl.attacks import ATTACKS, RandomScaling, SignFlip
from dragfl.testing import BrokenContract, check_attack
from dragfl.types import NoState


@pytest.mark.parametrize("attack", [SignFlip(), SignFlip(scale=10.0), RandomScaling(), RandomScaling(std=3.0)])
def test_built_in_attacks_pass(attack: Any) -> None:
    check_attack(attack)


@pytest.mark.parametrize("name", ATTACKS)
def test_registered_attacks_pass(name: str) -> None:
    check_attack(ATTACKS[name]())


class Reverse:
    """Each attacker sends its own update reversed."""

    knowledge = "own"

    def init(self, info: Any) -> Any:
        return NoState()

    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return replace(view.own, delta=-view.own.delta), state


class ReverseHonest(Reverse):
    knowledge = "omniscient"

    def craft(self, state: Any, view: Any, context: Any) -> Any:
        delta = -view.honest.delta.mean(0).repeat(len(view.own), 1)
        return replace(view.own, delta=delta), state


class ReverseMean(Reverse):
    knowledge = "colluding"

    def craft(self, state: Any, view: Any, context: Any) -> Any:
        delta = -view.own.delta.mean(0, keepdim=True).repeat(len(view.own), 1)
        return replace(view.own, delta=delta), state


@dataclass(frozen=True)
class Last:
    mean: Any = None


class Replay(ReverseMean):
    """Sends the mean of the attackers' last updates: a state that is a tensor or None."""

    def init(self, info: Any) -> Any:
        return Last()

    def craft(self, state: Any, view: Any, context: Any) -> Any:
        mean = view.own.delta.mean(0)
        sent = torch.zeros_like(mean) if state.mean is None else state.mean
        return replace(view.own, delta=sent.repeat(len(view.own), 1)), Last(mean)


@pytest.mark.parametrize("attack", [Reverse(), ReverseHonest(), ReverseMean(), Replay()])
def test_attacks_of_every_knowledge_pass(attack: Any) -> None:
    check_attack(attack)


class PeeksAtHonest(ReverseHonest):
    knowledge = "own"


class PeeksAtOthers(ReverseMean):
    knowledge = "own"


class DrawsByOrder(Reverse):
    """One generator for the round, consumed row by row: an attacker's draw depends on the attackers before it."""

    def craft(self, state: Any, view: Any, context: Any) -> Any:
        draws = torch.from_numpy(context.rng("attack").normal(size=(len(view.own), 1)).astype(np.float32))
        return replace(view.own, delta=view.own.delta * draws), state


class DrawsGlobally(Reverse):
    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return replace(view.own, delta=torch.randn_like(view.own.delta)), state


class Mutates(Reverse):
    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return replace(view.own, delta=view.own.delta.neg_()), state


class AddsRow(Reverse):
    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return replace(view.own, delta=view.own.delta.repeat(2, 1)), state


class Doubles(Reverse):
    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return replace(view.own, delta=view.own.delta.double()), state


class ForgesWeight(Reverse):
    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return replace(view.own, weight=view.own.weight * 100), state


class ForgesClientId(Reverse):
    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return replace(view.own, client=view.own.client + 1), state


class StateIsList(Reverse):
    def init(self, info: Any) -> Any:
        return []


class UnknownKnowledge(Reverse):
    knowledge = "psychic"


class ReturnsTensor(Reverse):
    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return -view.own.delta, state


BROKEN = [
    (PeeksAtHonest, "runs", r"craft raised AttributeError: 'NoneType'"),
    (PeeksAtOthers, "own", r"row 0 of 3 differs by \d"),
    (DrawsByOrder, "own", r"row 1 of 3 differs by \d"),
    (DrawsGlobally, "pure", r"craft changed the global generator of\['torch'\]"),
    (Mutates, "pure", r"craft changed its View\.own\.delta"),
    (AddsRow, "updates", r"delta is torch.float32 \(6, 12\) for clean updates of \(3, 12\)"),
    (Doubles, "updates", r"delta is torch.float64"),
    (ForgesWeight, "updates", r"weight is \[2000.0, 2100.0, 2200.0\], expected \[20.0, 21.0, 22.0\]"),
    (ForgesClientId, "updates", r"client is \[1, 2, 3\], expected \[0, 1, 2\]"),
    (StateIsList, "state", r"init returned a list"),
    (UnknownKnowledge, "knowledge", r"knowledge is 'psychic'"),
    (ReturnsTensor, "runs", r"it returned a Tensor, not Updates"),
]


@pytest.mark.parametrize(("part", "name", "seen"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_broken_attacks_fail_by_name(part: type[Reverse], name: str, seen: str) -> None:
    with pytest.raises(BrokenContract, match=seen) as caught:
        check_attack(part())
    assert str(caught.value).startswith(f"{part.__name__} breaks '{name}': ")
