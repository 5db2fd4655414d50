"""What lies in a slot of the region, together with what was answered of it, as what it is: a block sent, or folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.backends.shared_memory import Answer, FoldAnswer, part, unflat
from dragfl.engine.worker import ClientResults
from dragfl.types import Updates

T = TypeVar("T")

Slot = Mapping[str, Tensor]


def received(clients: tuple[int, ...], slot: Slot, answers: list[Answer], keep: bool = False) -> ClientResults:
    """A block put together: views of its slot, or with `keep` the caller's own."""
    k = len(clients)
    extra = {name: slot[f"extra/{name}"][:k] for name in answers[0].names if name not in answers[0].extra}
    for name in answers[0].extra:
        extra[name] = torch.cat([torch.from_numpy(answer.extra[name]) for answer in answers])
    states = states_of(k, slot, answers)
    delta = slot["delta"][:k]
    if keep:
        delta, extra = delta.clone(), {name: value.clone() for name, value in extra.items()}
        states = [{name: value.clone() for name, value in state.items()} for state in states]
    loss, steps = _joined(a.loss for a in answers), _joined(a.steps for a in answers)
    weight = torch.tensor(_joined(a.weight for a in answers), dtype=torch.float64)
    updates = Updates(delta, weight, torch.tensor(clients), extra, torch.tensor(steps))
    return ClientResults(updates, loss, steps, tuple(states))


def states_of(k: int, slot: Slot, answers: list[Answer]) -> list[Mapping[str, Tensor]]:
    """What the clients of a block keep: in the slot, or where it has no room for it in the answers."""
    after = part(slot, "next")
    states: list[Mapping[str, Tensor]] = [{name: value[i] for name, value in after.items()} for i in range(k)]
    first = 0
    for answer in answers:
        for i, state in enumerate(answer.states):
            states[first + i] = {name: torch.as_tensor(value) for name, value in state.items()}
        first += len(answer.loss)
    return states


def folded(answer: FoldAnswer, slot: Slot, answers: list[Answer]) -> BlockResult:
    """A block that a worker folded: views of its slot."""
    named = {name: slot[f"folded/{name}"] for name in answer.names if name not in answer.rest}
    named |= {name: torch.as_tensor(value) for name, value in answer.rest.items()}
    partial = unflat(answer.count, named)
    loss, steps = _joined(a.loss for a in answers), _joined(a.steps for a in answers)
    states, used = tuple(states_of(len(answer.used), slot, answers)), torch.tensor(answer.used)
    return BlockResult(partial, used, loss, steps, states, answer.bytes_up, answer.infeasible)


def _joined(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
