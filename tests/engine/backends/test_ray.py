"""Workers of a Ray cluster return the bits of one process; lost work is repeated, and no process is left."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import dragfl
from dragfl.config.compare import same_result
from dragfl.engine.backends import ray as ray_backend
from dragfl.engine.backends.ray import ActorHandle, RayBackend, ray
from dragfl.engine.backends.ray_worker import Array, machine_info
from dragfl.engine.backends.supervisor import WorkerGroup
from dragfl.engine.threads import one_thread, own_generator
from dragfl.errors import Interrupted, PartError, SpecError
from tests.conftest import TIMEOUT_S, Load, command
from tests.engine.backends.parts import AttackWithAttribute
from tests.engine.backends.test_pool import PARTS, assert_equal_calls, digits
from tests.engine.backends.test_worker_process import FRAGILE, marked
from tests.runs.processes import wait_until


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two nodes with one CPU each, whose workers look for files in a folder."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_TEST", str(folder))
        ray()
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", nodes.address)
        yield nodes
        ray().shutdown()
        nodes.shutdown()


@pytest.fixture
def files(nodes: Any) -> Iterator[Path]:
    folder = Path(os.environ["POOL_TEST"])
    yield folder
    for file in folder.iterdir():
        file.unlink()


def on_ray(**changes: Any) -> dragfl.Experiment:
    return digits(2, **{**changes, "engine": {"executor": "ray", **changes.get("engine", {})}})


def kept(simulation: Any, records: list[Any]) -> tuple[Any, ...]:
    """Everything that must be equal: models, buffers, client states, records."""
    state = simulation.state
    vectors = [None if v is None else v.numpy().tobytes() for v in (state.w, simulation.evaluated_model, state.buffers)]
    stored = {name: value.numpy().tobytes() for name, value in simulation.federation.store.tensors().items()}
    return vectors, stored, [(record.metrics, record.clients) for record in records]


def run_experiment(experiment: dragfl.Experiment) -> tuple[Any, ...]:
    with dragfl.simulate(experiment) as simulation:
        return kept(simulation, list(simulation))


def workers(simulation: Any) -> list[int]:
    return [worker.process for worker in simulation.federation.backend.group.workers if worker.ready]


def both_ready(simulation: Any) -> bool:
    """Whether both nodes, with one CPU each, have a worker; a worker joins during a call."""
    simulation.federation.backend.scores(simulation.state.w)
    return len(workers(simulation)) == 2


def test_two_nodes_and_a_worker_killed_in_mid_round(
    files: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block is trained and folded by the cluster, one worker dies in the second round: the bits are equal."""
    changes: dict[str, Any] = {"model": FRAGILE, "algorithm": {"name": "scaffold"}}
    sizes, placed = [], []
    run_in_order, to_arrays = WorkerGroup.run_in_order, ray_backend.to_arrays

    def note_type(value: Any) -> Any:
        placed.append(type(value))
        return to_arrays(value)

    def note_sizes(group: Any, tasks: Any) -> Iterator[Any]:
        for result in run_in_order(group, tasks):
            sizes.append(nbytes(result.partial) if hasattr(result, "partial") else 0)
            yield result

    monkeypatch.setattr(WorkerGroup, "run_in_order", note_sizes)
    monkeypatch.setattr(ray_backend, "to_arrays", note_type)
    with dragfl.simulate(on_ray(**changes)) as simulation, caplog.at_level(logging.WARNING, "dragfl"):
        records = [simulation.step()]
        wait_until(lambda: both_ready(simulation))
        first = workers(simulation)
        (files / "die once").touch()
        records.append(simulation.step())
        assert not list(files.iterdir())
        assert any("was lost" in text and "clients" in text for text in caplog.messages)
        records.append(simulation.step())
        found = kept(simulation, records)
    assert found == run_experiment(digits(1, **changes))
    assert placed.count(dragfl.Dataset) == 1, "the data are placed once, for all workers"
    assert 0 < max(sizes) <= 8 * 4 * simulation.federation.info.dim, "sums, whatever the size of a block"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in first))
    assert "worker died" not in "".join(capfd.readouterr()), "Ray's own message is suppressed"


def nbytes(value: Any) -> int:
    """The size of all arrays in a value."""
    if isinstance(value, Array):
        return value.values.nbytes
    inner = value.values() if isinstance(value, dict) else vars(value).values() if hasattr(value, "__dict__") else ()
    return sum(map(nbytes, inner))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"algorithm": {"name": "drag"}}, id="a first pass for the mean"),
        pytest.param({"algorithm": {"name": "adabest"}, "state": {"memory_mb": 0}}, id="states in a file"),
        pytest.param({"algorithm": {"name": "trimmed_mean"}}, id="a rule that needs all updates"),
        pytest.param(
            {"algorithm": {"name": "br_drag"}, "attack": {"name": "alie", "attackers": 4}}, id="colluding attackers"
        ),
        pytest.param({"algorithm": {"name": "cone_drag"}}, id="directions"),
        pytest.param({"attack": {"name": f"{PARTS}:AttackWithState", "attackers": 3}}, id="an attack with a state"),
        pytest.param({"model": {"name": f"{PARTS}:batch_norm_model", "buffers": "average"}}, id="buffers"),
        pytest.param({"model": {"name": f"{PARTS}:dropout_model"}}, id="dropout"),
        pytest.param({"algorithm": {"aggregate": {"name": f"{PARTS}:FirstOfBlock"}}}, id="partials that are views"),
        pytest.param({"model": {"name": "resnet"}, "rounds": 1, "clients": {"per_round": 5}}, id="convolutions"),
        pytest.param({"clients": {"per_round": 2}}, id="one block"),
    ],
)
def test_other_settings(nodes: Any, changes: dict[str, Any]) -> None:
    assert run_experiment(on_ray(**changes)) == run_experiment(digits(1, **changes))


@pytest.mark.slow
def test_a_dataset_object_is_sent_to_the_cluster(nodes: Any, experiment: Load) -> None:
    found = run_experiment(experiment(engine={"executor": "ray", "block": 2}))
    assert found == run_experiment(experiment(engine={"executor": "local", "block": 2}))


@pytest.mark.slow
def test_an_error_in_a_worker_and_a_block_that_ends_every_worker(files: Path) -> None:
    """Both are raised in this process, and the round can be repeated."""
    with dragfl.simulate(on_ray(model=FRAGILE)) as simulation:
        (files / "fail").touch()
        with pytest.raises(PartError, match="Fragile raised ValueError: this layer is broken") as caught:
            simulation.step()
        assert "parts.py" in caught.value.__notes__[0]
        (files / "fail").unlink()
        (files / "die always").touch()
        with pytest.raises(Interrupted, match=r"lost 3 times on clients \d+"):
            simulation.step()
        (files / "die always").unlink()
        records = list(simulation)
        assert kept(simulation, records) == run_experiment(digits(1, model=FRAGILE))


@pytest.mark.slow
def test_workers_killed_with_a_task_in_their_queue(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    send, armed = ActorHandle.send, []

    def send_and_kill(worker: ActorHandle, task: Any) -> None:
        send(worker, task)
        if armed:
            armed.clear()
            assert worker.process is not None
            os.kill(worker.process, signal.SIGKILL)

    monkeypatch.setattr(ActorHandle, "send", send_and_kill)
    changes: dict[str, Any] = {"rounds": 6, "model": {"name": "mlp"}}
    with dragfl.simulate(on_ray(**changes)) as simulation:
        records = [simulation.step()]
        while not simulation.done:
            armed.append(True)
            records.append(simulation.step())
        assert kept(simulation, records) == run_experiment(digits(1, **changes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dropout_model", "batch_norm_model"])
def test_gradients_and_root_update(nodes: Any, name: str) -> None:
    model = {"name": f"{PARTS}:{name}", "buffers": "average"} if "norm" in name else {"name": f"{PARTS}:{name}"}
    with dragfl.simulate(on_ray(model=model)) as simulation, one_thread(), own_generator():
        assert_equal_calls(simulation.federation.backend, simulation)


@pytest.mark.slow
def test_a_node_is_removed_and_another_added(nodes: Any) -> None:
    """The other worker repeats its blocks; a new node gets a worker."""
    with dragfl.simulate(on_ray()) as simulation:
        records = [simulation.step()]
        wait_until(lambda: both_ready(simulation))
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        records.append(simulation.step())
        nodes.add_node(num_cpus=1)
        records.append(simulation.step())
        assert kept(simulation, records) == run_experiment(digits(1))


@pytest.mark.slow
def test_an_interrupt_in_mid_round_closes_the_workers(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    collect, armed = WorkerGroup.collect, []

    def interrupted(group: Any, timeout_s: float | None = None) -> Any:
        if armed:
            armed.clear()
            raise KeyboardInterrupt
        return collect(group, timeout_s)

    monkeypatch.setattr(WorkerGroup, "collect", interrupted)
    with dragfl.simulate(on_ray()) as simulation:
        records = [simulation.step()]
        armed.append(True)
        with pytest.raises(KeyboardInterrupt):
            simulation.step()
        executor: Any = simulation.federation.backend
        assert executor.group is None and not ray().is_initialized()
        records += simulation
        assert kept(simulation, records) == run_experiment(digits(1))


@pytest.mark.slow
def test_a_worker_with_other_versions_is_reported(
    nodes: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_backend, "machine_info", lambda: machine_info() | {"torch": "1.0"})
    run_experiment(on_ray(rounds=1))
    assert any("torch" in text and "this machine 1.0" in text for text in caplog.messages)


@pytest.mark.slow
def test_an_existing_connection_stays_open(nodes: Any) -> None:
    ray().init(address=nodes.address, log_to_driver=False)
    before = signal.getsignal(signal.SIGTERM)
    try:
        run_experiment(on_ray(rounds=1))
        assert ray().is_initialized()
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        ray().shutdown()


SCRIPT = """
import dragfl, sys
tables = {"rounds": int(sys.argv[1]), "model": {"name": "mlp"}, "engine": {"executor": "ray", "workers": 1, "block": 4}}
first, second = dragfl.simulate(dragfl.load(tables)), dragfl.simulate(dragfl.load(tables))
for record, other in zip(first, second):
    assert record.metrics == other.metrics
    print(record.round, flush=True)
print("closed", flush=True)
input()
"""


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> str:
    """A value in the environment of every process that the test starts, which know of no cluster and print as usual."""
    value = uuid.uuid4().hex
    for name in ray_backend._QUIET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POOL_MARKER", value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return value


def started(folder: Path, rounds: int) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    words = [sys.executable, "script.py", str(rounds)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_private_ray_ends_with_the_last_run(marker: str, tmp_path: Path) -> None:
    """Without a cluster a private Ray is started and shared by two runs; it prints nothing and leaves no process."""
    with started(tmp_path, 2) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "closed\n"]
        wait_until(lambda: marked(marker) == [process.pid])
        out, err = process.communicate("\n")
    waiting = "no worker of the Ray cluster has started yet"  # on a busy machine
    assert out == "" and [line for line in err.splitlines() if not line.startswith(waiting)] == []
    assert process.returncode == 0


@pytest.mark.slow
def test_a_killed_parent_leaves_no_process(marker: str, tmp_path: Path) -> None:
    with started(tmp_path, 100_000) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert len(marked(marker)) > 4
        process.kill()
    wait_until(lambda: not marked(marker))


@pytest.mark.slow
@pytest.mark.parametrize("strikes", [1, 2])
def test_ctrl_c_on_the_command_line(marker: str, tmp_path: Path, digits_toml: Path, strikes: int) -> None:
    words = command("run", digits_toml, "rounds=100000", "engine.executor=ray", "engine.block=2", "--quiet")
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    log = tmp_path / "runs" / "small" / "metrics.jsonl"
    wait_until(lambda: log.exists() and log.stat().st_size > 0)
    for _ in range(strikes):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5, said
    assert "Traceback" not in said and "resume" in said
    wait_until(lambda: not marked(marker))


def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with dragfl.simulate(on_ray()) as simulation, pytest.raises(SpecError, match=r"RAY_ADDRESS.*ray start"):
        simulation.step()


def test_a_ray_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Ray raises a plain Exception after a while."""

    def timed_out(**_: Any) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray(), "init", timed_out)
    monkeypatch.setattr(ray(), "is_initialized", lambda: False)
    with (
        dragfl.simulate(on_ray()) as simulation,
        pytest.raises(Interrupted, match="Ray has not started"),
    ):
        simulation.step()


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_backend, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"pip install 'dragfl\[ray\]'"):
        dragfl.simulate(on_ray())


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"name": nn.Sequential(nn.Flatten(), nn.Linear(64, 10))}},
        {"attack": {"name": AttackWithAttribute(3.0), "attackers": 1}},
    ],
    ids=["module", "attack with an attribute"],
)
def test_what_a_spec_cannot_express_cannot_be_sent(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"engine\.executor.*module:attr.*engine\.executor = 'local'"):
        dragfl.simulate(on_ray(**changes))


def test_a_cluster_is_used_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    for executor in ("auto", "local"):
        engine = {"executor": executor}
        assert not isinstance(dragfl.simulate(digits(2, engine=engine)).federation.backend, RayBackend)
    assert isinstance(dragfl.simulate(on_ray()).federation.backend, RayBackend)
    with pytest.raises(SpecError, match=r"engine\.executor"):
        dragfl.load({"engine": {"executor": "slurm"}})


def test_the_executor_is_not_part_of_the_experiment(tmp_path: Path) -> None:
    done = dragfl.run(digits(1, rounds=1), tmp_path / "run")
    assert same_result(on_ray(rounds=1).tables(), done.spec)
