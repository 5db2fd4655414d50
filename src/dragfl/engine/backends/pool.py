"""The process pool: blocks cut into pieces, dealt to workers, and put together again in shared memory.

A piece is some clients of one block; its worker writes their updates into the block's slot of the region, where they
lie exactly as one process would have put them, and one of the workers folds the block when it is whole. The cut decides
who works when and not a bit of the result. There are few slots, and a slot is used again when the caller has taken what
came of its block: memory does not grow with the cohort.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, pairwise

from torch import Tensor

from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.backends import LocalBackend
from dragfl.engine.backends.pool_calls import Call, Open
from dragfl.engine.backends.pool_slots import Slot, folded, received
from dragfl.engine.backends.shared_memory import Brief, Layout, Place, Shape, tensors_of, with_tensors
from dragfl.engine.backends.supervisor import DEPTH, Crew, Task, log
from dragfl.engine.worker import ClientResults, Score, TrainTask, Worker
from dragfl.errors import DataError, SpecError
from dragfl.types import Plan

LARGE = 1024  # sums of fewer numbers may as well go through the pipe


class PoolBackend:
    """Workers started at the first round; `sure` if a pool was asked for, so that an obstacle is an error."""

    def __init__(
        self, worker: Worker, tables: Mapping[str, object], workers: int, piece: int, reusable: bool, sure: bool
    ) -> None:
        self._alone, self._setting, self._test_blocks = LocalBackend(worker), worker.info, worker.test_blocks
        self._rule, self._group = worker.aggregate, worker.trainer.group  # clients of a group are not parted
        self._hire: Callable[[], Crew] = lambda: Crew(workers, tables, reusable)
        self._workers, self._piece, self._sure = workers, piece, sure
        self._crew: Crew | None = None
        self._close: Callable[[], object] = lambda: None
        self._given_up = False
        self._extras: dict[str, Shape] = {}  # what clients send beside their update, known from the first answer on
        self._sums: dict[str, Shape] = {}  # the vectors among the sums of a block, likewise

    def map(self, jobs: Iterable[TrainTask], keep: bool = False) -> Iterator[ClientResults]:
        crew = self._start()
        with self._sound(crew):
            if crew is None:
                yield from self._alone.map(jobs)
                return
            for block, slot in self._blocks(crew, iter(jobs)):
                yield received(block.job.clients, slot, block.sent, keep)

    def fold(self, jobs: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        crew = self._start()
        if crew is None or tensors_of(plan) is None:  # a plan that cannot be sent as it is stays here
            yield from (fold(self._rule, plan, sent) for sent in self.map(jobs))
            return
        with self._sound(crew):
            for block, slot in self._blocks(crew, iter(jobs), plan, folds=True):
                assert block.folded is not None
                yield folded(block.folded, slot, block.sent)

    @contextmanager
    def _sound(self, crew: Crew | None) -> Iterator[None]:
        """After Ctrl-C in here start anew; one that strikes while the caller has the word does not come here."""
        try:
            yield
        except KeyboardInterrupt:
            if crew is not None:
                crew.abandon()
            self.close()
            raise

    def _blocks(
        self, crew: Crew, jobs: Iterator[TrainTask], plan: Plan = None, folds: bool = False
    ) -> Iterator[tuple[Open, Slot]]:
        """Every block when all of it is done, and its slot, which is used again when the next one is asked for."""
        first = next(jobs, None)
        if first is None:
            return
        call = Call(chain([first], jobs), self._announce(crew, first, plan), self._cut, folds)
        while True:
            crew.feed(call.draw)
            if call.over:
                return
            whole = call.whole()
            for task, answer in crew.collect(wait=whole is None):
                call.done(task, answer)
            if whole is not None:
                crew.feed(call.draw)  # so that nobody waits while the caller folds
                self._learn(whole)
                yield whole, call.slots[whole.slot]
                call.release()

    def _cut(self, clients: int) -> list[int]:
        """The sizes of the pieces of a block: about as many for each worker and about equal, of whole groups."""
        groups = -(-clients // self._group)
        pieces = min(groups, self._workers * -(-clients // (self._workers * self._piece)))
        ends = [min(clients, groups * i // pieces * self._group) for i in range(pieces + 1)]
        return [end - start for start, end in pairwise(ends)]

    def _learn(self, block: Open) -> None:
        """What came with the answers of this block has room in the slots of the next call."""
        for answer in block.sent:
            self._extras |= {name: Shape(str(v.dtype), v.shape[1:]) for name, v in answer.extra.items()}
        rest = block.folded.rest if block.folded else {}
        large = {name: v for name, v in rest.items() if v.size >= LARGE and not name.startswith("columns/")}
        self._sums |= {name: Shape(str(v.dtype), v.shape) for name, v in large.items()}

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        if self._crew is None:
            return self._alone.scores(w, buffers)
        with self._sound(self._crew):
            return self._scores(self._crew, w, buffers)

    def _scores(self, crew: Crew, w: Tensor, buffers: Tensor | None) -> list[Score]:
        crew.settle()
        self._write(crew, Layout(), {"w": w} | ({} if buffers is None else {"buffers": buffers}))
        blocks = iter(range(self._test_blocks))
        asked: dict[Task, int] = {}
        found: dict[int, Score] = {}

        def draw() -> Task | None:
            block = next(blocks, None)
            if block is None:
                return None
            task = Task(f"test block {block}", ("score", block))
            asked[task] = block
            return task

        while len(found) < self._test_blocks:
            crew.feed(draw)
            for task, answer in crew.collect():
                found[asked[task]] = answer
        return [found[i] for i in range(self._test_blocks)]

    def close(self) -> None:
        self._close()
        self._crew = None

    def _start(self) -> Crew | None:
        """The workers; None if they cannot be told of the experiment and nobody insists on them."""
        if self._crew is None and not self._given_up:
            crew = self._hire()
            self._close = weakref.finalize(self, crew.close)
            try:
                crew.wait_ready()
            except Exception as error:
                self._close()
                if self._sure and not isinstance(error, SpecError | DataError):
                    raise
                if self._sure:
                    raise SpecError(
                        f"engine.workers: a worker process cannot put the experiment in place: {error}; "
                        "give module:attr of what can be imported, or set engine.workers = 1"
                    ) from None
                log.info("training in one process: a worker process cannot put the experiment in place: %s", error)
                self._given_up = True
                return None
            except BaseException:
                crew.abandon()
                raise
            self._crew = crew
        return self._crew

    def _announce(self, crew: Crew, job: TrainTask, plan: Plan) -> list[dict[str, Tensor]]:
        """Put in place what all pieces share, and make the slots."""
        crew.settle()
        layout = Layout()
        k, row = len(job.clients), Shape("float32", (self._setting.dim,))
        states = {name: Shape.of(value) for name, value in job.states[0].items()}
        shapes = {"delta": row} | {f"extra/{name}": shape for name, shape in self._extras.items()}
        shapes |= {f"{when}/{name}": shape for when in ("mine", "next") for name, shape in states.items()}
        once = {f"folded/{name}": shape for name, shape in self._sums.items()}
        count = min(2 * self._workers, 2 + -(-DEPTH * self._workers * max(self._piece, self._group) // k))
        slots = tuple(
            {name: layout.place(shape, (k,)) for name, shape in shapes.items()}
            | {name: layout.place(shape) for name, shape in once.items()}
            for _ in range(count)
        )
        attack, planned = tensors_of(job.attack_state) or {}, tensors_of(plan) or {}
        header = {"w": job.w} | {f"sent/{name}": value for name, value in job.sent.items()}
        header |= {f"attack/{name}": value for name, value in attack.items()}
        header |= {f"plan/{name}": value for name, value in planned.items()}
        told = with_tensors(plan, dict.fromkeys(planned)), with_tensors(job.attack_state, dict.fromkeys(attack))
        brief = Brief(0, {}, slots, job.context, *told)
        self._write(crew, layout, header, brief)
        return [{name: crew.region.tensor(place) for name, place in slot.items()} for slot in slots]

    def _write(self, crew: Crew, layout: Layout, header: Mapping[str, Tensor], brief: Brief | None = None) -> None:
        """Copy these tensors into the region and tell the workers where they are."""
        places: dict[str, Place] = {name: layout.place(Shape.of(value)) for name, value in header.items()}
        crew.region.grow(layout.size)
        for name, value in header.items():
            crew.region.tensor(places[name]).copy_(value)
        crew.brief(replace(brief or Brief(0, {}), size=layout.size, header=places))
