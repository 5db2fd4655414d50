"""The supervisor with workers that exist in this test only: order, lost workers, errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from dragfl.engine.backends.supervisor import DEPTH, TRIES, Event, Task, WorkerGroup, describe_error, rebuild_error
from dragfl.errors import DataError, DragflError, Interrupted, SpecError


class FakeWorker:
    def __init__(self, first: Event) -> None:
        self.tasks: deque[Task] = deque()
        self.ready = self.reused = False
        self.events: deque[Event] = deque([first])
        self.shared: Any = None
        self.ended = False

    def send(self, task: Task) -> None:
        event, *arguments = task.message
        self.events.append(event(self, *arguments) if callable(event) else (event, *arguments))

    def share(self, value: Any) -> None:
        self.shared = value

    def end(self) -> None:
        self.ended = True


class FakeLauncher:
    """Delivers one event at a time, of the worker started last: results come in the reverse order of the tasks."""

    name, advice = "fake worker", "try again"

    def __init__(self, first: Event = ("ready",)) -> None:
        self.first = first
        self.started: list[FakeWorker] = []
        self.released: list[FakeWorker] = []

    def start(self) -> FakeWorker:
        self.started.append(FakeWorker(self.first))
        return self.started[-1]

    def receive(self, workers: list[FakeWorker], timeout_s: float | None) -> Iterator[tuple[FakeWorker, Event]]:
        worker = next(worker for worker in reversed(workers) if worker.events)
        yield worker, worker.events.popleft()

    def release(self, worker: FakeWorker) -> None:
        self.released.append(worker)


def test_results_come_in_task_order_and_tasks_are_drawn_a_few_ahead() -> None:
    group, drawn = WorkerGroup(FakeLauncher(), 3), []

    def tasks() -> Iterator[Task]:
        for i in range(20):
            drawn.append(i)
            yield Task(f"task {i}", ("done", i))

    results = []
    for result in group.run_in_order(tasks()):
        results.append(result)
        assert len(drawn) <= len(results) + DEPTH * 3
    assert results == list(range(20)) and not group.busy


def test_a_lost_worker_is_replaced_and_its_tasks_are_repeated() -> None:
    launcher, lost = FakeLauncher(), []

    def lose_once(worker: FakeWorker) -> Event:
        lost.append(worker)
        return ("lost", "on purpose") if len(lost) == 1 else ("done", worker.shared)

    group = WorkerGroup(launcher, 1)
    group.share("common")
    tasks = [Task("first", (lose_once,)), Task("second", ("done", 2))]
    assert list(group.run_in_order(iter(tasks))) == ["common", 2]
    assert len(launcher.started) == 2 and lost == launcher.started


def test_a_task_that_loses_every_worker_is_given_up() -> None:
    launcher = FakeLauncher()
    group = WorkerGroup(launcher, 1)
    with pytest.raises(Interrupted, match=rf"lost {TRIES} times on client 7 .*on purpose.*try again"):
        list(group.run_in_order(iter([Task("client 7", ("lost", "on purpose"))])))
    group.settle()
    assert list(group.run_in_order(iter([Task("client 8", ("done", 8))]))) == [8]


def test_workers_that_never_become_ready_are_given_up() -> None:
    launcher = FakeLauncher(("lost", "on purpose"))
    with pytest.raises(Interrupted, match="before it was ready"):
        WorkerGroup(launcher, 1).wait_ready()
    assert len(launcher.started) == TRIES + 1


def test_an_error_in_a_task_is_raised_and_the_group_stays_usable() -> None:
    group = WorkerGroup(FakeLauncher(), 2)
    with pytest.raises(ZeroDivisionError, match="by zero") as caught:
        list(group.run_in_order(iter([Task("bad", ("failed", "ZeroDivisionError", "by zero", "the traceback"))])))
    assert "the traceback" in caught.value.__notes__[0]
    group.settle()
    assert list(group.run_in_order(iter([Task("good", ("done", 1))]))) == [1]


def test_an_error_in_the_setup_names_the_worker() -> None:
    launcher = FakeLauncher(("failed", "DataError", "no such file", ""))
    with pytest.raises(SpecError, match="a fake worker cannot set up the experiment: no such file"):
        WorkerGroup(launcher, 1).wait_ready()


def test_close_releases_workers_and_ends_them_after_an_interrupt() -> None:
    launcher = FakeLauncher()
    group = WorkerGroup(launcher, 2)
    group.close()
    assert launcher.released == launcher.started and not group.workers
    other = WorkerGroup(launcher, 2)
    other.close(at_once=True)
    assert [worker.ended for worker in launcher.started] == [False, False, True, True]


def test_errors_travel_as_text() -> None:
    class OwnError(Exception):
        pass

    for error, kind in ((DataError("x"), DataError), (KeyError("x"), KeyError), (OwnError("x"), DragflError)):
        found = rebuild_error(*describe_error(error))
        assert type(found) is kind and "x" in str(found)
    assert "OwnError" in str(rebuild_error(*describe_error(OwnError("x"))))
