"""The Ray backend: whole blocks on the workers of a cluster. Data are placed once, and only sums travel back.

    to the workers    once         the experiment's tables; the data, in the object store of every node
                      each call    model, broadcast and plan: one object for all of its blocks
                      each block   its clients and their states
    from them         each block   sums, losses and new states; the updates only if the caller asks for them

A worker is an actor with one CPU. Its results depend on its arguments only, so another worker repeats the block of one
that was lost, with the same bits.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any, ClassVar

from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.backends.ray_worker import RayWorker, machine_info, to_arrays, to_tensors
from dragfl.engine.backends.supervisor import Event, Task, WorkerGroup, closed_on_interrupt, log
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.evaluation import Score
from dragfl.engine.simulator import Worker
from dragfl.errors import Interrupted, SpecError
from dragfl.types import Plan, RoundContext, Updates

ADDRESS = "RAY_ADDRESS"  # where Ray's own tools look for the cluster, too
FIRST_WORKER_S = 20.0  # a warning after this time without any worker

# Read by Ray when it is imported. Ray reports lost workers and full stores on standard output; we log the first.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": r"A worker died or was killed|Spilled \d"}

# Read by the processes of a private Ray: if this process is killed, they look for the head this long and then end.
_RECONNECT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}


def require_ray() -> None:
    """Raise an error that names the extra, before anything runs."""
    if find_spec("ray") is None:
        raise SpecError(
            "engine.executor: 'ray' needs Ray, not installed here: pip install 'dragfl[ray]'; "
            "or set engine.executor = 'local' to train on this machine"
        )


def ray() -> Any:
    """The package, imported when a cluster is used: it takes half a second."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


class RayBackend:
    """Workers of a cluster, which is joined or started at the first call."""

    reuses_memory: ClassVar[bool] = False

    def __init__(
        self,
        worker: Worker,
        entry_point: str,
        tables: Mapping[str, Any],
        workers: int | None,
        blocks: int,
        cores: int,
    ) -> None:
        """`entry_point` names a function that makes a `Worker` from the tables and the data.

        `workers`: None for all CPUs of the cluster (`cores` if it is this machine); at most `blocks`.
        """
        self._local, self._dataset = LocalBackend(worker), worker.dataset
        self._evaluation_blocks = worker.evaluation_blocks
        self._entry_point, self._tables = entry_point, tables
        self._workers, self._blocks, self._cores = workers, blocks, cores
        self._calls = 0
        self._close: Callable[[], object] = lambda: None
        self.group: WorkerGroup[ActorHandle] | None = None

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        return self._run_blocks("train", iter(tasks))

    def fold(self, tasks: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        return self._run_blocks("fold", iter(tasks), plan)

    def gradients(self, tasks: Iterable[TrainTask]) -> Iterator[Updates]:
        """Each client is a task, so that all workers have one; the gradients of a block are joined."""
        sizes: deque[int] = deque()

        def one_by_one() -> Iterator[TrainTask]:
            for task in tasks:
                sizes.append(len(task.clients))
                for i, client in enumerate(task.clients):
                    attackers = task.attackers.intersection([client])
                    yield replace(task, clients=(client,), states=task.states[i : i + 1], attackers=attackers)

        results = self._run_blocks("gradients", one_by_one())
        for first in results:
            yield Updates.concat([first, *islice(results, sizes.popleft() - 1)])

    def _run_blocks(self, method: str, tasks: Iterator[TrainTask], plan: Plan = None) -> Iterator[Any]:
        first = next(tasks, None)
        if first is None:
            return
        shared = first.w, first.broadcast, first.context, first.attack_state, plan
        yield from self._run(shared, (_block_task(method, task) for task in chain([first], tasks)))

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        (update,) = self._run((w, context, buffers), iter([Task("the root data", ("train_root",))]))
        assert isinstance(update, Tensor)
        return update

    def train_directions(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self._local.train_directions(w, context, buffers)  # to send them takes longer than to compute them

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        if self.group is None:
            return self._local.scores(w, buffers)
        tasks = (Task(f"evaluation block {block}", ("score", block)) for block in range(self._evaluation_blocks))
        return list(self._run((w, buffers), tasks))

    def _run(self, shared: tuple[Any, ...], tasks: Iterator[Task]) -> Iterator[Any]:
        """The results of one call, in task order; `shared` is what all of its tasks need."""
        with closed_on_interrupt(self.close):
            group = self._start()
            group.settle()
            self._calls += 1
            group.share((self._calls, ray().put(to_arrays(shared))))
            for result in group.run_in_order(tasks):
                yield to_tensors(result)

    def missing(self) -> Mapping[int, str]:
        return {}

    def close(self) -> None:
        self._close()
        self.group = None

    def _start(self) -> WorkerGroup[ActorHandle]:
        if self.group is None:
            stack = ExitStack()
            self._close = weakref.finalize(self, stack.close)
            try:
                session = Session(min(self._workers or self._cores, self._blocks))
                stack.callback(session.leave)
                settings = {"folder": os.getcwd(), "path": list(sys.path)}  # noqa: PTH109
                setup = settings, self._entry_point, self._tables, ray().put(to_arrays(self._dataset))
                size = self._workers or int(ray().cluster_resources().get("CPU", 1))
                group = WorkerGroup(ActorLauncher(setup, session.cpus_per_worker), max(1, min(size, self._blocks)))
                stack.callback(group.close)
                group.wait_ready()
            except SpecError as error:
                self._close()
                raise SpecError(
                    f"engine.executor: {error}; or set engine.executor = 'local' to train on this machine"
                ) from None
            except BaseException:
                self._close()
                raise
            self.group = group
        return self.group


def _block_task(method: str, task: TrainTask) -> Task:
    clients = f"clients {', '.join(map(str, task.clients))}"
    return Task(clients, (method, task.clients, task.states, task.attackers))


class ActorHandle:
    """One actor and its queue of tasks."""

    reused = False

    def __init__(self, setup: tuple[Any, ...], cpus: int) -> None:
        self._actor = ray().remote(num_cpus=cpus, max_restarts=0)(RayWorker).remote()
        self.replies: deque[Any] = deque([self._actor.prepare.remote(*setup)])  # references, as Ray promises them
        self.tasks: deque[Task] = deque()
        self.ready = False
        self.process: int | None = None  # known when it is ready
        self._shared: tuple[Any, ...] = ()

    def send(self, task: Task) -> None:
        method, *arguments = task.message
        self.replies.append(self._actor.run.remote(*self._shared, method, to_arrays(arguments)))

    def share(self, value: tuple[Any, ...], core: int | None = None) -> None:
        self._shared = value

    def end(self) -> None:
        if ray().is_initialized():  # otherwise the actor has ended with the connection
            ray().kill(self._actor)


class ActorLauncher:
    """Starts actors that set up one experiment."""

    name = "worker of the Ray cluster"
    advice = "is memory short there, or dragfl not installed? engine.executor = 'local' trains on this machine"

    def __init__(self, setup: tuple[Any, ...], cpus: int) -> None:
        self._setup, self._cpus = setup, cpus
        self._reported: set[str] = set()  # in what workers differ from this machine

    def start(self) -> ActorHandle:
        return ActorHandle(self._setup, self._cpus)

    def receive(self, workers: list[ActorHandle], timeout_s: float | None) -> Iterator[tuple[ActorHandle, Event]]:
        pending = {worker.replies[0]: worker for worker in workers if worker.replies}
        done, _ = ray().wait(list(pending), timeout=FIRST_WORKER_S if timeout_s is None else timeout_s)
        if not done:
            if not any(worker.ready for worker in workers):
                free = ray().available_resources().get("CPU", 0)
                log.warning("no worker of the Ray cluster has started yet; %g of its CPUs are free", free)
            return
        worker = pending[done[0]]
        try:
            kind, *content = ray().get(done[0])
        except ray().exceptions.RayTaskError as error:
            kind, content = "failed", ["DragflError", f"a {self.name} could not answer: {error}", ""]
        except ray().exceptions.RayError as error:
            worker.end()
            yield worker, ("lost", str(error).strip().splitlines()[-1].split(". ")[0][:200])
            return
        worker.replies.popleft()
        if kind == "done" and not worker.ready:
            worker.process, info = content[0]
            self._compare(info)
            kind, content = "ready", []
        yield worker, (kind, *content)

    def _compare(self, there: Mapping[str, str]) -> None:
        here = machine_info()
        for what in sorted(here.keys() - self._reported):
            if there[what] != here[what]:
                self._reported.add(what)
                log.warning(
                    "a worker of the Ray cluster has %s %s and this machine %s: the last bits may depend on which "
                    "worker trains which block",
                    what, there[what], here[what],
                )  # fmt: skip

    def release(self, worker: ActorHandle) -> None:
        worker.end()


class Session:
    """A use of this process's connection to Ray: an existing one, one to a cluster, or one to a private Ray.

    The last session to leave closes a connection that was made here.
    """

    _sessions = 0  # that use a connection made here
    _private = False  # it is a connection to a Ray of this process alone

    def __init__(self, cpus: int) -> None:
        """`cpus`: how many workers a private Ray starts with."""
        self._counted = Session._sessions > 0 or not ray().is_initialized()
        if not ray().is_initialized():
            _connect(cpus)
        Session._sessions += self._counted
        # A private Ray runs only our workers: if they claimed CPUs, a second experiment would wait for the first.
        self.cpus_per_worker = 0 if self._counted and Session._private else 1

    def leave(self) -> None:
        Session._sessions -= self._counted
        if self._counted and not Session._sessions:
            ray().shutdown()
        self._counted = False


def _connect(cpus: int) -> None:
    address = os.environ.get(ADDRESS) or "local"
    Session._private = address == "local"
    where = {"address": address} | ({"num_cpus": cpus, "include_dashboard": False} if Session._private else {})
    try:
        _check_address(address)
        with _environment_for_ray(_RECONNECT if Session._private else {}):
            ray().init(log_to_driver=False, logging_level=logging.ERROR, **where)
    except BaseException as error:
        with suppress(Exception):
            ray().shutdown()
        if isinstance(error, OSError) and not Session._private:
            raise SpecError(
                f"no Ray cluster answers at {ADDRESS} = '{address}' ({error}); start one with `ray start --head`, "
                f"or unset {ADDRESS}"
            ) from None
        if type(error) in (Exception, RuntimeError, TimeoutError):  # as Ray raises them: a part of it has not started
            raise Interrupted(
                f"Ray has not started ({error}); is the machine busy, or memory short? Repeat the command, or set "
                "engine.executor = 'local'"
            ) from None
        raise


def _check_address(address: str) -> None:
    """Raise an OSError if nothing listens there; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()


@contextmanager
def _environment_for_ray(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started in here, and restore the SIGTERM handler that Ray replaces."""
    before, added = signal.getsignal(signal.SIGTERM), [name for name in variables if name not in os.environ]
    try:
        os.environ.update({name: variables[name] for name in added})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for name in added:
            del os.environ[name]
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
