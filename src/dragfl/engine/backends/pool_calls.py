"""One call of a pool: its blocks in slots, cut into pieces, put together again when all pieces are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from torch import Tensor

from dragfl.engine.backends.shared_memory import Answer, FoldAnswer
from dragfl.engine.backends.supervisor import Task
from dragfl.engine.worker import TrainTask


@dataclass
class Open:
    """A block under way."""

    job: TrainTask
    slot: int
    left: int  # pieces that are not done
    answers: dict[int, Answer] = field(default_factory=dict)  # by the first row
    folded: FoldAnswer | None = None

    @property
    def sent(self) -> list[Answer]:
        """What was answered, in the order of the clients."""
        return [answer for _, answer in sorted(self.answers.items())]


class Call:
    """The blocks that are open, in order, and the pieces that are not yet given out.

    A block is opened, and its job drawn, when a worker has room and a slot is free. With `folds` a block whose clients
    are all trained is one more piece of work, for whoever is free.
    """

    def __init__(
        self, jobs: Iterator[TrainTask], slots: list[dict[str, Tensor]], cut: Callable[[int], list[int]], folds: bool
    ) -> None:
        self.slots = slots
        self._jobs, self._cut, self._folds = jobs, cut, folds
        self._trained: deque[Open] = deque()
        self._more = True
        self._free = deque(range(len(slots)))
        self._blocks: deque[Open] = deque()
        self._pieces: deque[tuple[Open, int, int]] = deque()  # of a block, from this row to that
        self._asked: dict[Task, tuple[Open, int]] = {}

    @property
    def over(self) -> bool:
        return not self._blocks and not self._more

    def draw(self) -> Task | None:
        """The next piece; None if there is none, or no room for it."""
        if self._trained:
            block = self._trained.popleft()
            task = Task(
                f"the sum of {len(block.job.clients)} clients", ("fold", block.slot, block.job.clients, block.sent)
            )
            self._asked[task] = block, -1
            return task
        if not self._pieces and not self._open():
            return None
        block, first, end = self._pieces.popleft()
        clients = block.job.clients[first:end]
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
        rows = [0, *accumulate(self._cut(len(job.clients)))]
        block = Open(job, slot, len(rows) - 1)
        self._blocks.append(block)
        self._pieces.extend((block, first, end) for first, end in pairwise(rows))
        return True

    def done(self, task: Task, answer: Any) -> None:
        block, first = self._asked.pop(task)
        if first < 0:
            block.folded = answer
            return
        block.answers[first] = answer
        block.left -= 1
        if self._folds and not block.left:
            self._trained.append(block)

    def whole(self) -> Open | None:
        """The first block, if nothing of it is missing."""
        block = self._blocks[0] if self._blocks else None
        done = block is not None and not block.left and (block.folded is not None or not self._folds)
        return block if done else None

    def release(self) -> None:
        """The first block has been used."""
        self._free.append(self._blocks.popleft().slot)
