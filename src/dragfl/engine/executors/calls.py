"""One call of a pool: its blocks in slots, cut into pieces, put together again when all pieces are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from dragfl.engine.executors.children import Task
from dragfl.engine.executors.region import Answer, part
from dragfl.engine.worker import Job, Sent
from dragfl.types import Updates

T = TypeVar("T")

Slot = Mapping[str, Tensor]


@dataclass
class Open:
    """A block under way."""

    job: Job
    slot: int
    left: int  # pieces that are not done
    answers: dict[int, Answer] = field(default_factory=dict)  # by the first row


class Call:
    """The blocks that are open, in order, and the pieces that are not yet given out.

    A block is opened, and its job drawn, when a worker has room and a slot is free.
    """

    def __init__(self, jobs: Iterator[Job], slots: list[dict[str, Tensor]], piece: int) -> None:
        self.slots = slots
        self._jobs, self._piece = jobs, piece
        self._more = True
        self._free = deque(range(len(slots)))
        self._blocks: deque[Open] = deque()
        self._pieces: deque[tuple[Open, int]] = deque()
        self._asked: dict[Task, tuple[Open, int]] = {}

    @property
    def over(self) -> bool:
        return not self._blocks and not self._more

    def draw(self) -> Task | None:
        """The next piece; None if there is none, or no room for it."""
        if not self._pieces and not self._open():
            return None
        block, first = self._pieces.popleft()
        clients = block.job.clients[first : first + self._piece]
        attackers = block.job.attackers.intersection(clients)
        names = ", ".join(map(str, clients))
        task = Task(f"clients {names}", ("train", block.slot, first, clients, attackers))
        self._asked[task] = block, first
        return task

    def _open(self) -> bool:
        if not self._free or not self._more:
            return False
        job = next(self._jobs, None)
        self._more = job is not None
        if job is None:
            return False
        slot = self._free.popleft()
        for i, state in enumerate(job.states):
            for name, value in state.items():
                self.slots[slot][f"mine/{name}"][i].copy_(value)
        starts = range(0, len(job.clients), self._piece)
        block = Open(job, slot, len(starts))
        self._blocks.append(block)
        self._pieces.extend((block, first) for first in starts)
        return True

    def done(self, task: Task, answer: Answer) -> None:
        block, first = self._asked.pop(task)
        block.answers[first] = answer
        block.left -= 1

    def whole(self) -> Open | None:
        """The first block, if nothing of it is missing."""
        return self._blocks[0] if self._blocks and not self._blocks[0].left else None

    def release(self) -> None:
        """The first block has been used."""
        self._free.append(self._blocks.popleft().slot)


def received(block: Open, slot: Slot, keep: bool) -> Sent:
    """A block put together: views of its slot, or with `keep` the caller's own."""
    clients = block.job.clients
    k = len(clients)
    answers = [answer for _, answer in sorted(block.answers.items())]
    extra = {name: slot[f"extra/{name}"][:k] for name in answers[0].names if name not in answers[0].extra}
    for name in answers[0].extra:
        extra[name] = torch.cat([torch.from_numpy(answer.extra[name]) for answer in answers])
    after = part(slot, "next")
    states: list[Mapping[str, Tensor]] = [{name: value[i] for name, value in after.items()} for i in range(k)]
    for first, answer in block.answers.items():
        for i, state in enumerate(answer.states):
            states[first + i] = {name: torch.as_tensor(value) for name, value in state.items()}
    delta = slot["delta"][:k]
    if keep:
        delta, extra = delta.clone(), {name: value.clone() for name, value in extra.items()}
        states = [{name: value.clone() for name, value in state.items()} for state in states]
    loss, steps = _joined(a.loss for a in answers), _joined(a.steps for a in answers)
    weight = torch.tensor(_joined(a.weight for a in answers), dtype=torch.float64)
    updates = Updates(delta, weight, torch.tensor(clients), extra, torch.tensor(steps))
    return Sent(updates, loss, steps, tuple(states))


def _joined(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
