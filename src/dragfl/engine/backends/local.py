"""The backend of one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.evaluation import Score
from dragfl.engine.simulator import Worker
from dragfl.types import Plan, RoundContext, Updates


class LocalBackend:
    """One worker in this process, one block after the other."""

    reuses_memory: ClassVar[bool] = False

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        return map(self._worker.train, tasks)

    def fold(self, tasks: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        return (self._worker.fold(task, plan) for task in tasks)

    def gradients(self, tasks: Iterable[TrainTask]) -> Iterator[Updates]:
        return map(self._worker.gradients, tasks)

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self._worker.train_root(w, context, buffers)

    def train_directions(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self._worker.train_directions(w, context, buffers)

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        return [self._worker.score(w, block, buffers) for block in range(self._worker.evaluation_blocks)]

    def missing(self) -> Mapping[int, str]:
        return {}

    def close(self) -> None:
        pass
