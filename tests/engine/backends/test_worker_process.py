"""Worker processes that die, a parent that dies, Ctrl-C, scripts and notebooks: no work is lost, no process is left."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import dragfl
from dragfl import build
from dragfl.engine.backends import worker_process
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.backends.pool import PoolBackend
from dragfl.engine.backends.worker_process import end_idle_processes
from dragfl.errors import Interrupted, PartError, SpecError
from tests.conftest import TIMEOUT_S, Load, command
from tests.engine.backends.parts import AttackWithAttribute
from tests.engine.backends.test_pool import PARTS, digits, run_digits
from tests.runs.processes import wait_until

FRAGILE = {"name": f"{PARTS}:Fragile"}


@pytest.fixture(autouse=True, scope="module")
def _leave_no_workers() -> Iterator[None]:
    yield
    end_idle_processes()


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> str:
    """A value in the environment of every process that the test starts."""
    value = uuid.uuid4().hex
    monkeypatch.setenv("POOL_MARKER", value)
    return value


def marked(marker: str) -> list[int]:
    """The living processes with this marker."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"POOL_MARKER={marker}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def pids(simulation: Any) -> list[int]:
    return [worker.process.pid for worker in simulation.federation.backend.group.workers]


def test_a_worker_that_dies_is_replaced_and_its_tasks_are_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(build, "PIECE_WORK", 1.0)
    alone = run_digits(1, model=FRAGILE)
    monkeypatch.setenv("POOL_TEST", str(tmp_path))
    (tmp_path / "die once").touch()
    (tmp_path / "die once more").touch()
    with caplog.at_level(logging.WARNING, "dragfl"):
        assert run_digits(2, model=FRAGILE) == alone
    assert not list(tmp_path.iterdir())
    assert any("killed by signal 9" in text and "clients" in text for text in caplog.messages)


@pytest.mark.slow
def test_workers_killed_from_outside_between_rounds() -> None:
    alone = run_digits(1, rounds=4)
    with dragfl.simulate(digits(2, rounds=4)) as simulation:
        records = []
        for record in simulation:
            records.append((record.metrics, record.clients))
            if not simulation.done:
                os.kill(pids(simulation)[record.round % 2], signal.SIGKILL)
        assert records == alone[1]
        assert simulation.state.w.numpy().tobytes() == alone[0][0]


def test_a_block_that_kills_every_worker_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POOL_TEST", str(tmp_path))
    (tmp_path / "die always").touch()
    with dragfl.simulate(digits(2, model=FRAGILE)) as simulation:
        with pytest.raises(Interrupted, match=r"lost 3 times on clients \d+"):
            simulation.step()
        (tmp_path / "die always").unlink()
        simulation.step()


def test_an_error_in_a_worker_is_raised_in_the_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POOL_TEST", str(tmp_path))
    (tmp_path / "fail").touch()
    with dragfl.simulate(digits(2, model=FRAGILE)) as simulation:
        with pytest.raises(PartError, match="Fragile raised ValueError: this layer is broken") as caught:
            simulation.step()
        assert "parts.py" in caught.value.__notes__[0]
        (tmp_path / "fail").unlink()
        simulation.step()


class Service:
    """Its first task gets a second one and a request to stop from the parent while it works."""

    def __init__(self, parent: worker_process.ParentConnection, ours: int) -> None:
        self.parent, self.ours = parent, Connection(os.dup(ours))

    def first(self) -> tuple[bool, bool]:
        before = self.parent.should_stop()
        for message in (("run", "second", 7), ("stop",), ("release",)):
            self.ours.send(message)
        return before, self.parent.should_stop()

    def second(self, number: int) -> int:
        return number


def test_messages_that_arrive_during_a_task() -> None:
    """A request to stop is seen at once, and the task before it is done afterwards."""
    ours, theirs = Pipe()
    settings = {"folder": str(Path.cwd()), "environment": {}, "path": list(sys.path)}
    ours.send(("prepare", 1, settings, f"{__name__}:Service", (ours.fileno(),), False))
    ours.send(("run", "first"))
    worker_process.ParentConnection(theirs).serve(idle_s=0.0)
    assert [ours.recv() for _ in range(3)] == [("ready", 1), ("done", (False, True)), ("done", 7)]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity; it takes Linux")
def test_a_worker_may_move_to_any_core_after_it_has_been_woken() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    core = max(os.sched_getaffinity(0))
    with process:
        with worker_process._wakes_on(process.pid, core):
            assert os.sched_getaffinity(process.pid) == {core}
        assert os.sched_getaffinity(process.pid) == os.sched_getaffinity(0)
        process.kill()
    with worker_process._wakes_on(process.pid, core):
        pass  # a worker that has died is noticed when its answer is read


def test_workers_serve_the_next_run_and_end_with_their_owner(marker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "IDLE_S", TIMEOUT_S)  # a busy machine may need long until the second run
    end_idle_processes()
    simulation = dragfl.simulate(digits(2))
    simulation.step()
    first = pids(simulation)
    assert sorted(first) == sorted(set(marked(marker)) - {os.getpid()})
    del simulation
    gc.collect()
    with dragfl.simulate(digits(2, algorithm={"name": "scaffold"})) as other:
        other.step()
        assert sorted(pids(other)) == sorted(first)
    end_idle_processes()
    wait_until(lambda: not marked(marker))


@pytest.mark.slow
def test_processes_with_a_users_module_are_not_reused() -> None:
    """The file of the module may change between runs."""
    with dragfl.simulate(digits(2, model={"name": f"{PARTS}:dropout_model"})) as simulation:
        simulation.step()
        first = pids(simulation)
        assert all(Path(f"/proc/{pid}").exists() for pid in first)
    assert not any(Path(f"/proc/{pid}").exists() for pid in first)


SCRIPT = """
import dragfl, sys
tables = {"rounds": 100000, "model": {"name": "mlp"}, "engine": {"workers": 2, "block": 4}}
for record in dragfl.simulate(dragfl.load(tables)):
    print(record.round, flush=True)
"""


def test_a_killed_parent_leaves_no_process(marker: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        wait_until(lambda: len(marked(marker)) == 3)
        process.kill()
    wait_until(lambda: not marked(marker))


def test_ctrl_c_leaves_a_resumable_run_and_no_process(marker: str, tmp_path: Path, digits_toml: Path) -> None:
    words = command("run", digits_toml, "rounds=100000", "engine.workers=2", "--quiet")
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    log = tmp_path / "runs" / "small" / "metrics.jsonl"
    wait_until(lambda: log.exists() and log.stat().st_size > 0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the parent and its workers
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5, said
    assert "Traceback" not in said and "resume" in said
    wait_until(lambda: not marked(marker))


MAIN = """
import dragfl
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layer = nn.Linear(64, classes)
    def forward(self, x):
        return self.layer(x.flatten(1))

def start(model, **engine):
    return dragfl.simulate(dragfl.load({"rounds": 2, "model": {"name": model}, "engine": engine}))

print(len(list(start("logistic", workers=2))), "rounds without a guard")
print(len(list(start(Net))), "rounds with a class of this script")
try:
    start(Net, workers=2)
except dragfl.errors.SpecError as error:
    print(error)
"""


def run_python(script: str, folder: Path, code: str | None = None) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, script]
    return subprocess.run(words, input=code, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_a_script_without_a_guard(tmp_path: Path, marker: str) -> None:
    (tmp_path / "script.py").write_text(MAIN)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "2 rounds without a guard"
    assert second == "2 rounds with a class of this script"
    assert "__main__:Net" in third and "module:attr" in third and "engine.workers = 1" in third
    assert not done.stderr
    wait_until(lambda: not marked(marker))


@pytest.mark.slow
def test_code_from_standard_input(tmp_path: Path) -> None:
    """`__main__` has no file, as in a notebook."""
    code = MAIN.replace('start(Net))), "rounds with', 'start(Net, workers=1))), "rounds with')
    done = subprocess.run(
        [sys.executable, "-"], input=code, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"name": nn.Sequential(nn.Flatten(), nn.Linear(64, 10))}},
        {"model": {"name": lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes))}},
        {"attack": {"name": AttackWithAttribute(3.0), "attackers": 1}},
    ],
    ids=["module", "lambda", "attack with an attribute"],
)
def test_what_a_spec_cannot_express_needs_one_process(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"engine\.workers.*module:attr.*engine\.workers = 1"):
        dragfl.simulate(digits(2, **changes))
    assert isinstance(dragfl.simulate(digits(1, **changes)).federation.backend, LocalBackend)


def test_a_dataset_object_needs_one_process(experiment: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="object:toy"):
        dragfl.simulate(experiment(engine={"workers": 2}))
    monkeypatch.setattr(build, "RUN_WORK", 0.0)
    monkeypatch.setattr(build, "ROUND_WORK", 0.0)
    assert isinstance(dragfl.simulate(experiment()).federation.backend, LocalBackend)


@pytest.mark.slow
def test_a_module_that_workers_cannot_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """It exists in this process only; without `engine.workers` training falls back to one process."""
    monkeypatch.setattr(build, "RUN_WORK", 0.0)
    monkeypatch.setattr(build, "ROUND_WORK", 0.0)
    monkeypatch.setattr(build, "available_cores", lambda: 2)
    module: Any = type(sys)("by_hand_only")
    monkeypatch.setitem(sys.modules, "by_hand_only", module)
    exec("from torch import nn\ndef net(s, c): return nn.Sequential(nn.Flatten(), nn.Linear(64, c))", vars(module))
    required = dragfl.simulate(digits(2, model={"name": "by_hand_only:net"}))
    with required, pytest.raises(SpecError, match="cannot import 'by_hand_only'"):
        required.step()
    auto = dragfl.load({**digits(1, model={"name": "by_hand_only:net"}).tables(), "engine": {}})
    with dragfl.simulate(auto) as simulation:
        assert isinstance(simulation.federation.backend, PoolBackend)
        simulation.step()


def test_small_runs_stay_in_one_process() -> None:
    assert isinstance(dragfl.simulate(dragfl.load({})).federation.backend, LocalBackend)


def test_large_runs_use_every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "available_cores", lambda: 5)
    tables = {"rounds": 600, "clients": {"total": 40, "batch_size": 200}, "model": {"name": "mlp", "hidden": 2000}}
    executor = dragfl.simulate(dragfl.load(tables)).federation.backend
    assert isinstance(executor, PoolBackend) and executor.size == 5


@pytest.mark.parametrize("value", [0, -1, "many", 1.5])
def test_invalid_numbers_of_workers(value: Any) -> None:
    with pytest.raises(SpecError, match=r"engine\.workers"):
        dragfl.load({"engine": {"workers": value}})


@pytest.mark.slow
def test_ten_thousand_clients_a_round_take_no_more_memory_than_ten() -> None:
    """Anonymous memory of the parent, measured by the kernel: telemetry, and nothing of 1.5 GB of updates."""
    code = """
import dragfl, sys
from pathlib import Path
tables = {"rounds": 2, "data": {"partition": {"kind": "resampled", "k": 50}}, "model": {"name": "mlp"},
          "clients": {"total": 10000, "per_round": int(sys.argv[1]), "local_steps": 1}, "engine": {"workers": 2}}
peak = 0
for record in dragfl.simulate(dragfl.load(tables, "algorithm.name=br_drag", "root.size=50")):
    status = Path("/proc/self/status").read_text()
    peak = max(peak, int(status.split("RssAnon:")[1].split()[0]))
print(peak)
"""
    peaks = []
    for per_round in ("10", "10000"):
        out = subprocess.run([sys.executable, "-c", code, per_round], capture_output=True, text=True, check=True)
        peaks.append(int(out.stdout))
    assert peaks[1] - peaks[0] < 16 << 10, peaks
