"""Who runs the blocks of a round: this process, a pool of worker processes, or a Ray cluster. All give the same bits.

A block is cut, trained and crafted by functions of their arguments alone, draws are addressed, and whatever is summed
is summed by the caller in block order: so it cannot matter who ran a block, beside which others, or how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.worker import ClientResults, Score, TrainTask, Worker
from dragfl.types import Plan


class Backend(Protocol):
    def map(self, jobs: Iterable[TrainTask], keep: bool = False) -> Iterator[ClientResults]:
        """The results in the order of the jobs, of which all share one model, broadcast, round and attack state.

        A result may be read until the next one is asked for: its memory is then used again. Whoever needs several at
        a time says `keep` and owns them all. Jobs are drawn a few ahead of what is asked for.
        """

    def fold(self, jobs: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        """As `map`, each block folded by the aggregate: whoever trains far away sends back nothing but sums."""

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        """(right answers, summed loss) of every test block, in order."""

    def close(self) -> None:
        """Give back what is held between calls; the next call takes it again."""


class LocalBackend:
    """One worker, in this process, one block after the other."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def map(self, jobs: Iterable[TrainTask], keep: bool = False) -> Iterator[ClientResults]:
        return map(self._worker.train, jobs)

    def fold(self, jobs: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        return (self._worker.fold(job, plan) for job in jobs)

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        return [self._worker.score(w, i, buffers) for i in range(self._worker.test_blocks)]

    def close(self) -> None:
        pass
