"""Who runs the blocks of a round. Results come in block order, and no more are alive than are being looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from dragfl.engine.worker import Job, Sent, Worker


class Executor(Protocol):
    def map(self, jobs: Iterable[Job]) -> Iterator[Sent]: ...


class InProcess:
    """One worker, in this process, one block after the other."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def map(self, jobs: Iterable[Job]) -> Iterator[Sent]:
        return map(self._worker.train, jobs)
