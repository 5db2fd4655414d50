"""The Ray executor: whole blocks on the workers of a cluster; data are placed once and only sums travel back.

    down  once      the experiment's tables; the data, into the object store of every node
          a call    model, broadcast and plan: one object for all of its blocks
          a block   who is in it and what they keep
    up    a block   sums, losses and what its clients keep; their updates only for a caller that asks for them

What a worker does is a function of what it is sent, so the block of a worker that was lost is run again by another, to
the same bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.backends import LocalBackend
from dragfl.engine.backends.ray_arrays import unpacked
from dragfl.engine.backends.ray_workers import Crew, Task
from dragfl.engine.worker import ClientResults, Score, TrainTask, Worker
from dragfl.errors import DataError, SpecError
from dragfl.types import Plan


class RayBackend:
    """Workers of a cluster, which is joined or started at the first round."""

    def __init__(self, worker: Worker, tables: Mapping[str, Any], workers: int | None, blocks: int, cores: int) -> None:
        """`workers`: how many, None for all CPUs of the cluster (`cores` if it is this machine); at most `blocks`."""
        self._alone, self._test_blocks = LocalBackend(worker), worker.test_blocks
        self._hire: Callable[[], Crew] = lambda: Crew(tables, worker.dataset, workers, blocks, cores)
        self._crew: Crew | None = None
        self._close: Callable[[], object] = lambda: None

    def map(self, jobs: Iterable[TrainTask], keep: bool = False) -> Iterator[ClientResults]:
        return self._each("train", iter(jobs), None)

    def fold(self, jobs: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        return self._each("fold", iter(jobs), plan)

    def _each(self, kind: str, jobs: Iterator[TrainTask], plan: Plan) -> Iterator[Any]:
        """What the workers make of the jobs, in their order."""
        first = next(jobs, None)
        if first is None:
            return
        with self._sound():
            crew = self._start()
            crew.share((first.w, first.sent, first.context, first.attack_state, plan))
            for answer in crew.ordered(_task(kind, job) for job in chain([first], jobs)):
                yield unpacked(answer)

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        if self._crew is None:
            return self._alone.scores(w, buffers)
        with self._sound():
            self._crew.share((w, buffers))
            blocks = range(self._test_blocks)
            return list(self._crew.ordered(Task(f"test block {block}", "score", (block,)) for block in blocks))

    def close(self) -> None:
        self._close()
        self._crew = None

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """After Ctrl-C in here start anew; one that strikes while the caller has the word does not come here."""
        try:
            yield
        except KeyboardInterrupt:
            self.close()
            raise

    def _start(self) -> Crew:
        if self._crew is None:
            crew = self._hire()
            self._close = weakref.finalize(self, crew.close)
            try:
                crew.begin()
            except (SpecError, DataError) as error:
                self._close()
                raise SpecError(
                    f"engine.executor: {error}; or set engine.executor = 'local' to train on this machine"
                ) from None
            except BaseException:
                self._close()
                raise
            self._crew = crew
        return self._crew


def _task(kind: str, job: TrainTask) -> Task:
    return Task(f"clients {', '.join(map(str, job.clients))}", kind, (job.clients, job.states, job.attackers))
