"""The process pool: blocks are cut into pieces, trained by worker processes, and joined in shared memory.

A piece is some clients of one block. Its worker writes their updates into the block's slot of the shared memory, where
they are laid out as one process would have them, and one of the workers folds the block when it is complete. The cut
decides who works when and changes no bit of the result. There are few slots, and a slot is reused when the caller has
read the result of its block: memory does not grow with the cohort.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.backends.pool_worker import (
    CallSetup,
    FoldResult,
    PieceResult,
    Slot,
    join_fold,
    join_results,
    join_weights,
)
from dragfl.engine.backends.shared_memory import (
    MemoryLayout,
    SharedMemory,
    TensorSpec,
    add_prefix,
    replace_fields,
    tensor_fields,
)
from dragfl.engine.backends.supervisor import DEPTH, Task, WorkerGroup, closed_on_interrupt, log
from dragfl.engine.backends.worker_process import ProcessLauncher, WorkerProcess
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.evaluation import Score
from dragfl.engine.simulator import Worker
from dragfl.errors import SpecError
from dragfl.types import Plan, RoundContext, Updates

SMALL_PLAN = 4 << 20  # bytes; a plan up to this size is always sent
MANY = 8  # blocks for each worker: those that one of them trains last delay a round little
LARGE = 1024  # sums with fewer numbers travel with the message
SERVICE = "dragfl.engine.backends.pool_worker:PoolWorker"
ADVICE = "is memory short? set engine.workers = 1 to train in one process"


class PoolBackend:
    """Worker processes, started at the first call."""

    reuses_memory: ClassVar[bool] = True

    def __init__(
        self,
        worker: Worker,
        entry_point: str,
        tables: Mapping[str, Any],
        workers: int,
        piece: int,
        reusable: bool,
        required: bool,
    ) -> None:
        """`entry_point` names a function that makes a `Worker` from the tables; `piece`: clients trained in one task.

        `reusable`: the processes may serve the next experiment. `required`: it is an error if they cannot set up this
        one; otherwise training stays in this process.
        """
        self._local, self._info, self._evaluation_blocks = LocalBackend(worker), worker.info, worker.evaluation_blocks
        self._aggregate, self._trainer_group = worker.aggregate, worker.local.trainer.group
        self._arguments, self._reusable = (entry_point, tables), reusable
        self._piece, self._required = piece, required
        self._close: Callable[[], object] = lambda: None
        self._unusable = False
        self._extras = {name: TensorSpec(torch.float32, shape) for name, shape in worker.local.sends.shapes.items()}
        self._sums: dict[str, TensorSpec] = {}  # the vectors among the sums of a block, known from the first result
        self.size = workers
        self.memory = SharedMemory.create()
        self.group: WorkerGroup[WorkerProcess] | None = None

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        group = self._start()
        if group is None:
            yield from self._local.train(tasks)
            return
        for block in self._blocks(group, "train", iter(tasks)):
            yield join_results(block.task.clients, block.slot, block.results)

    def fold(self, tasks: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        group = self._start()
        if group is None or not self._sends(plan):
            yield from (fold(self._aggregate, plan, results) for results in self.train(tasks))
            return
        for block in self._blocks(group, "train", iter(tasks), plan, folds=True):
            assert block.folded is not None
            yield join_fold(block.task.clients, block.folded, block.slot, block.results)

    def _sends(self, plan: Plan) -> bool:
        """Whether workers fold. A plan that cannot be sent, or is larger than all updates, stays in this process."""
        planned = tensor_fields(plan)
        updates = 4 * self._info.dim * self._info.per_round
        return planned is not None and sum(value.nbytes for value in planned.values()) <= max(updates, SMALL_PLAN)

    def gradients(self, tasks: Iterable[TrainTask]) -> Iterator[Updates]:
        group = self._start()
        if group is None:
            yield from self._local.gradients(tasks)
            return
        for block in self._blocks(group, "gradients", iter(tasks)):
            clients = block.task.clients
            yield Updates(block.slot["delta"][: len(clients)], join_weights(block.results), torch.tensor(clients))

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        group = self._start()
        if group is None:
            return self._local.train_root(w, context, buffers)
        with closed_on_interrupt(self._abandon):
            layout = MemoryLayout()
            place = layout.place(TensorSpec.of(w))
            setup = CallSetup(slots=({"delta": place},), context=context)
            self._begin_call(group, layout, _model_inputs(w, buffers), setup)
            list(group.run_in_order(iter([Task("the root data", ("train_root",))])))
            return self.memory.tensor(place).clone()

    def train_directions(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self._local.train_directions(w, context, buffers)  # to copy them takes as long as to compute them

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        if self.group is None:
            return self._local.scores(w, buffers)
        with closed_on_interrupt(self._abandon):
            self._begin_call(self.group, MemoryLayout(), _model_inputs(w, buffers), CallSetup())
            tasks = (Task(f"evaluation block {block}", ("score", block)) for block in range(self._evaluation_blocks))
            return list(self.group.run_in_order(tasks))

    def missing(self) -> Mapping[int, str]:
        return {}

    def close(self) -> None:
        self._close()
        self.group, self.memory = None, SharedMemory.create()

    def _abandon(self) -> None:
        if self.group is not None:
            self.group.close(at_once=True)
        self.close()

    def _start(self) -> WorkerGroup[WorkerProcess] | None:
        """The workers; None if they cannot set up the experiment and are not required."""
        if self.group is None and not self._unusable:
            launcher = ProcessLauncher(SERVICE, self._arguments, ADVICE, self.memory, self._reusable)
            group = WorkerGroup(launcher, self.size)
            self._close = weakref.finalize(self, group.close)
            try:
                group.wait_ready()
            except Exception as error:
                self._close()
                if self._required and not isinstance(error, SpecError):
                    raise
                if self._required:
                    advice = "name it as module:attr of an importable module, or set engine.workers = 1"
                    raise SpecError(f"engine.workers: {error}; {advice}") from None
                log.info("training in one process: %s", error)
                self._unusable = True
                return None
            except BaseException:
                group.close(at_once=True)
                raise
            self.group = group
        return self.group

    def _blocks(
        self,
        group: WorkerGroup[WorkerProcess],
        method: str,
        tasks: Iterator[TrainTask],
        plan: Plan = None,
        folds: bool = False,
    ) -> Iterator[Block]:
        """Every block when it is complete. Its slot is reused when the next one is requested."""
        first = next(tasks, None)
        if first is None:
            return
        with closed_on_interrupt(self._abandon):
            slots = self._place_slots(group, first, plan)
            sizes = self._sizes(len(first.clients), folds) if method == "train" else one_by_one
            scheduler = PieceScheduler(method, chain([first], tasks), slots, sizes, folds)
            while True:
                group.feed(scheduler.draw)
                if scheduler.finished:
                    return
                block = scheduler.complete_block()
                for task, result in group.collect(timeout_s=None if block is None else 0.0):
                    scheduler.take(task, result)
                if block is not None:
                    group.feed(scheduler.draw)  # so that no worker waits while the caller uses the block
                    self._learn_sums(block)
                    yield block
                    scheduler.release_block()

    def _sizes(self, block: int, folds: bool) -> Callable[[int], list[int]]:
        """How blocks are cut. Whole blocks, trained and folded in one task, where they keep all workers busy."""
        blocks = -(-self._info.per_round // block)
        if folds and (blocks % self.size == 0 or blocks >= MANY * self.size):
            return lambda clients: [clients]
        return partial(piece_sizes, workers=self.size, piece=self._piece, trainer_group=self._trainer_group)

    def _learn_sums(self, block: Block) -> None:
        """The slots of the next call have places for the sums that came with the result of this block."""
        rest = block.folded.extra if block.folded else {}
        large = {name: v for name, v in rest.items() if v.size >= LARGE and not name.startswith("per_client/")}
        self._sums |= {name: TensorSpec.of(torch.from_numpy(v)) for name, v in large.items()}

    def _place_slots(self, group: WorkerGroup[WorkerProcess], task: TrainTask, plan: Plan) -> list[Slot]:
        """Begin a call: write what all pieces share, and make the slots."""
        layout = MemoryLayout()
        k, row = len(task.clients), TensorSpec(torch.float32, (self._info.dim,))
        state = {name: TensorSpec.of(value) for name, value in task.states[0].items()} if task.states else {}
        rows = {"delta": row, **add_prefix(self._extras, "extra")}
        rows |= {**add_prefix(state, "state"), **add_prefix(state, "next_state")}
        sums = add_prefix(self._sums, "folded")
        count = min(2 * self.size, 2 + -(-DEPTH * self.size * max(self._piece, self._trainer_group) // k))
        slots = tuple(
            {name: layout.place(spec, (k,)) for name, spec in rows.items()}
            | {name: layout.place(spec) for name, spec in sums.items()}
            for _ in range(count)
        )
        attack, planned = tensor_fields(task.attack_state) or {}, tensor_fields(plan) or {}
        inputs = {"w": task.w, **add_prefix(task.broadcast, "broadcast")}
        inputs |= {**add_prefix(attack, "attack"), **add_prefix(planned, "plan")}
        setup = CallSetup(
            slots=slots,
            context=task.context,
            plan=replace_fields(plan, dict.fromkeys(planned)),
            attack=replace_fields(task.attack_state, dict.fromkeys(attack)),
        )
        self._begin_call(group, layout, inputs, setup)
        return [self.memory.tensors(slot) for slot in slots]

    def _begin_call(
        self,
        group: WorkerGroup[WorkerProcess],
        layout: MemoryLayout,
        inputs: Mapping[str, Tensor],
        setup: CallSetup,
    ) -> None:
        """Copy the inputs into the shared memory and send the workers their places."""
        group.settle()
        places = {name: layout.place(TensorSpec.of(value)) for name, value in inputs.items()}
        self.memory.grow(layout.size)
        for name, value in inputs.items():
            self.memory.tensor(places[name]).copy_(value)
        group.share(replace(setup, size=layout.size, inputs=places))


def _model_inputs(w: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
    return {"w": w} if buffers is None else {"w": w, "buffers": buffers}


def piece_sizes(clients: int, workers: int, piece: int, trainer_group: int) -> list[int]:
    """The sizes of the pieces of a block: about equal, as many for each worker, and no trainer group is divided."""
    groups = -(-clients // trainer_group)
    pieces = min(groups, workers * -(-clients // (workers * piece)))
    ends = [min(clients, groups * i // pieces * trainer_group) for i in range(pieces + 1)]
    return [end - start for start, end in pairwise(ends)]


def one_by_one(clients: int) -> list[int]:
    """A full gradient takes many times longer than a message."""
    return [1] * clients


@dataclass
class Block:
    """A block in progress."""

    task: TrainTask
    slot: Slot
    slot_number: int
    missing: int  # pieces that are not done
    pieces: dict[int, PieceResult] = field(default_factory=dict)  # by the first row
    folded: FoldResult | None = None

    @property
    def results(self) -> list[PieceResult]:
        """The results of the pieces in client order."""
        return [result for _, result in sorted(self.pieces.items())]


class PieceScheduler:
    """The blocks in progress, in order, and the pieces that are not yet handed out.

    A block begins, and its task is drawn, when a worker can take a task and a slot is free. With `folds`, the worker of
    a block that is not cut folds it; a block of several pieces is one more piece of work when all of them are trained.
    """

    def __init__(
        self,
        method: str,
        tasks: Iterator[TrainTask],
        slots: list[Slot],
        piece_sizes: Callable[[int], list[int]],
        folds: bool,
    ) -> None:
        self._method, self._tasks, self._slots = method, tasks, slots
        self._piece_sizes, self._folds = piece_sizes, folds
        self._more_tasks = True
        self._free = deque(range(len(slots)))
        self._blocks: deque[Block] = deque()
        self._to_train: deque[tuple[Block, int, int]] = deque()  # (block, first row, end)
        self._to_fold: deque[Block] = deque()
        self._sent: dict[Task, tuple[Block, int]] = {}  # by the first row, -1 for the fold

    @property
    def finished(self) -> bool:
        return not self._blocks and not self._more_tasks

    def draw(self) -> Task | None:
        """The next piece; None if there is none, or no slot for it."""
        if self._to_fold:
            block, first = self._to_fold.popleft(), -1
            clients = block.task.clients
            task = Task(f"the sum of {len(clients)} clients", ("fold", block.slot_number, clients, block.results))
        elif self._to_train or self._begin_block():
            block, first, end = self._to_train.popleft()
            clients = block.task.clients[first:end]
            attackers = block.task.attackers.intersection(clients)
            whole = self._folds and len(clients) == len(block.task.clients)
            work = ("train_and_fold", block.slot_number) if whole else (self._method, block.slot_number, first)
            task = Task(f"clients {', '.join(map(str, clients))}", (*work, clients, attackers))
        else:
            return None
        self._sent[task] = block, first
        return task

    def _begin_block(self) -> bool:
        if not self._free or not self._more_tasks:
            return False
        task = next(self._tasks, None)
        self._more_tasks = task is not None
        if task is None:
            return False
        number = self._free.popleft()
        for i, state in enumerate(task.states):
            for name, value in state.items():
                self._slots[number][f"state/{name}"][i].copy_(value)
        rows = [0, *accumulate(self._piece_sizes(len(task.clients)))]
        block = Block(task, self._slots[number], number, len(rows) - 1)
        self._blocks.append(block)
        self._to_train.extend((block, first, end) for first, end in pairwise(rows))
        return True

    def take(self, task: Task, result: Any) -> None:
        block, first = self._sent.pop(task)
        if first < 0:
            block.folded = result
            return
        block.pieces[first], block.folded = result if isinstance(result, tuple) else (result, None)
        block.missing -= 1
        if self._folds and not block.missing and block.folded is None:
            self._to_fold.append(block)

    def complete_block(self) -> Block | None:
        """The first block, if nothing of it is missing."""
        block = self._blocks[0] if self._blocks else None
        done = block is not None and not block.missing and (block.folded is not None or not self._folds)
        return block if done else None

    def release_block(self) -> None:
        """The caller has read the first block."""
        self._free.append(self._blocks.popleft().slot_number)
