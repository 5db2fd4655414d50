"""Workers of a Ray cluster as the executor sees them: hired, given blocks, replaced when they are lost.

A worker is an actor with one CPU. It answers in the order in which it was asked, so of all it has been given only the
first can be the one that is in work.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dragfl.data.dataset import Dataset
from dragfl.engine.backends.ray_actor import Desk, machine
from dragfl.engine.backends.ray_arrays import packed
from dragfl.engine.backends.ray_session import Session, ray
from dragfl.engine.backends.supervisor import DEPTH, TRIES, rebuilt
from dragfl.errors import DataError, DragflError, Interrupted, SpecError

log = logging.getLogger("dragfl")

PATIENCE_S = 20.0  # without any worker, before a word is said


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work."""

    what: str  # for people
    kind: str  # of desk.py
    arguments: Any


@dataclass(eq=False)
class Asked:
    """What a worker was asked and has not answered: a task of some call, or to put the experiment in place."""

    answer: Any  # to be, as Ray promises it
    task: Task | None
    call: int


class Hand:
    """One worker and what it has been given to do, in order."""

    def __init__(self, data: tuple[Any, ...], cpus: int) -> None:
        self.actor = ray().remote(num_cpus=cpus, max_restarts=0)(Desk).remote()
        self.asked = deque([Asked(self.actor.prepare.remote(*data), None, 0)])
        self.process: int | None = None  # known as soon as it is ready

    @property
    def ready(self) -> bool:
        return self.process is not None

    def ask(self, task: Task, call: int, common: Any) -> None:
        answer = self.actor.work.remote(call, common, task.kind, packed(task.arguments))
        self.asked.append(Asked(answer, task, call))


class Crew:
    """The workers of one experiment."""

    def __init__(self, tables: Mapping[str, Any], dataset: Dataset, workers: int | None, most: int, cores: int) -> None:
        self._tables, self._dataset = tables, dataset
        self._workers, self._most, self._cores = workers, most, cores
        self._data: tuple[Any, ...] = ()  # what a worker puts in place
        self._session: Session | None = None
        self._hands: list[Hand] = []
        self._waiting: deque[Task] = deque()
        self._deaths: Counter[Task] = Counter()  # by the task in work
        self._stillborn = 0  # that were lost before they were ready, since the last that was
        self._told: set[str] = set()  # how workers differ from this machine
        self._call = 0
        self._common: Any = None

    def begin(self) -> None:
        """Hire, and wait for the first that has everything in place; the others join when they have."""
        self._session = Session(min(self._workers or self._cores, self._most))
        process = {"folder": os.getcwd(), "path": list(sys.path)}  # noqa: PTH109
        self._data = process, self._tables, ray().put(packed(self._dataset))
        size = self._workers or int(ray().cluster_resources().get("CPU", 1))
        self._hands = [self._hire() for _ in range(max(1, min(size, self._most)))]
        while not any(hand.ready for hand in self._hands):
            self._collect()

    def _hire(self) -> Hand:
        # A Ray of our own runs nothing but our workers: one that counted CPUs would have a second experiment wait.
        assert self._session is not None
        return Hand(self._data, 0 if self._session.alone else 1)

    def share(self, common: Any) -> None:
        """Begin a call: what all of its tasks need, put where every worker can read it."""
        self._call += 1
        self._common = ray().put(packed(common))
        self._waiting.clear()
        self._deaths.clear()

    def ordered(self, tasks: Iterator[Task]) -> Iterator[Any]:
        """The answers in the order of the tasks, which are drawn as far ahead as the workers can be kept busy with."""
        open_tasks: deque[Task] = deque()
        answers: dict[Task, Any] = {}
        more = True
        while True:
            while more and len(open_tasks) < DEPTH * len(self._hands):
                task = next(tasks, None)
                more = task is not None
                if task is not None:
                    open_tasks.append(task)
                    self._waiting.append(task)
            if not open_tasks:
                return
            while open_tasks[0] not in answers:
                answers.update(self._collect())
            self._feed()  # so that nobody waits while the caller is busy
            yield answers.pop(open_tasks.popleft())

    def _feed(self) -> None:
        while self._waiting:
            free = [hand for hand in self._hands if hand.ready and len(hand.asked) < DEPTH]
            if not free:
                return
            min(free, key=lambda hand: len(hand.asked)).ask(self._waiting.popleft(), self._call, self._common)

    def _collect(self) -> dict[Task, Any]:
        """Wait until something has happened; what has been done for the call at hand."""
        self._feed()
        first = {hand.asked[0].answer: hand for hand in self._hands if hand.asked}
        done, _ = ray().wait(list(first), timeout=PATIENCE_S)
        if not done:
            self._tell_of_waiting()
            return {}
        hand = first[done[0]]
        try:
            kind, *rest = ray().get(done[0])
        except ray().exceptions.RayTaskError as error:
            asked = hand.asked.popleft()
            if asked.task is not None and asked.call != self._call:  # of a call that nobody looks at any more
                return {}
            raise DragflError(f"a worker of the Ray cluster could not answer: {error}") from None
        except ray().exceptions.RayError as error:
            self._replace(hand, error)
            return {}
        asked = hand.asked.popleft()
        if asked.task is None:
            if kind == "failed":
                self._refuse(rebuilt(*rest))
            hand.process, self._stillborn = rest[0], 0
            self._compare(rest[1])
            return {}
        if asked.call != self._call:  # of a call that nobody looks at any more
            return {}
        if kind == "failed":
            raise rebuilt(*rest)
        return {asked.task: rest[0]}

    def _replace(self, hand: Hand, error: Exception) -> None:
        """Hire another in place of one that was lost, and have its tasks done again."""
        how = str(error).strip().splitlines()[-1].split(". ")[0][:200]
        task = hand.asked[0].task
        self._waiting.extendleft(a.task for a in reversed(hand.asked) if a.task and a.call == self._call)
        ray().kill(hand.actor)
        self._hands[self._hands.index(hand)] = self._hire()
        if task is not None:
            self._deaths[task] += 1
        self._stillborn += not hand.ready
        if self._stillborn >= TRIES or (task is not None and self._deaths[task] >= TRIES):
            what = f"on {task.what}" if task else "before it was ready"
            why = "is memory short?" if task else "is dragfl installed there?"
            raise Interrupted(
                f"a worker of the Ray cluster was lost {TRIES} times {what} (the last: {how}); {why} "
                "engine.executor = 'local' trains on this machine"
            )
        doing = f", and {task.what} done again" if task else ""
        log.warning("a worker of the Ray cluster was lost (%s); another is started%s", how, doing)

    def _compare(self, there: Mapping[str, str]) -> None:
        here = machine()
        for what in sorted(here.keys() - self._told):
            if there[what] != here[what]:
                self._told.add(what)
                log.warning(
                    "a worker of the Ray cluster has %s %s and this machine %s: the last bits may depend on who "
                    "trains which block",
                    what, there[what], here[what],
                )  # fmt: skip

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, SpecError | DataError):
            raise SpecError(f"a worker of the Ray cluster cannot put the experiment in place: {error}") from None
        raise error

    def _tell_of_waiting(self) -> None:
        if not any(hand.ready for hand in self._hands):
            free = ray().available_resources().get("CPU", 0)
            log.warning("no worker of the Ray cluster has started yet; %g of its CPUs are free", free)

    def close(self) -> None:
        """Let the workers go; whatever they are doing is not wanted any more."""
        hands, self._hands = self._hands, []
        self._common, self._data = None, ()
        session, self._session = self._session, None
        if ray().is_initialized():  # else it is gone with all of them
            for hand in hands:
                ray().kill(hand.actor)
        if session is not None:
            session.leave()
