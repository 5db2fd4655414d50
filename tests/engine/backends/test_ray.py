"""Workers of a Ray cluster give the bits of one process; what is lost is done again, and nothing is left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dragfl.engine.backends.ray_arrays import Array
from torch import nn

import dragfl
from dragfl.config.compare import same_result
from dragfl.engine.backends import desk, hands, session
from dragfl.engine.backends.ray import RayBackend
from dragfl.errors import Interrupted, SpecError
from tests.conftest import Load, command
from tests.engine.pool_parts import Strong
from tests.engine.test_pool import PARTS, digits
from tests.engine.test_pool_processes import FRAGILE, marked, wait_until


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two nodes with one CPU each, whose workers look for orders in a folder."""
    folder = tmp_path_factory.mktemp("orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_TEST", str(folder))
        session.ray()
        from ray.cluster_utils import RayBackend as Nodes

        nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", nodes.address)
        yield nodes
        session.ray().shutdown()
        nodes.shutdown()


@pytest.fixture
def orders(nodes: Any) -> Iterator[Path]:
    folder = Path(os.environ["POOL_TEST"])
    yield folder
    for file in folder.iterdir():
        file.unlink()


def on_ray(**changes: Any) -> dragfl.Experiment:
    return digits(2, **{**changes, "engine": {"executor": "ray", **changes.get("engine", {})}})


def kept(simulation: Any, records: list[Any]) -> tuple[Any, ...]:
    """Everything that must be the same: models, buffers, what clients keep, records."""
    state = simulation.state
    vectors = [None if v is None else v.numpy().tobytes() for v in (state.w, simulation.reported, state.buffers)]
    stored = {name: value.numpy().tobytes() for name, value in simulation.federation.store.tensors().items()}
    return vectors, stored, [(record.metrics, record.clients) for record in records]


def played(experiment: dragfl.Experiment) -> tuple[Any, ...]:
    with dragfl.simulate(experiment) as simulation:
        return kept(simulation, list(simulation))


def workers(simulation: Any) -> list[int]:
    return [hand.process for hand in simulation.federation.executor._crew._hands if hand.ready]


def both_at_work(simulation: Any) -> bool:
    """Whether both nodes, of one CPU each, have a worker; a worker joins when somebody asks for something."""
    simulation.federation.executor.scores(simulation.state.w)
    return len(workers(simulation)) == 2


def test_two_nodes_and_a_worker_killed_in_mid_round(
    orders: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block is trained and folded elsewhere, one worker dies in the second round: not a bit differs."""
    changes: dict[str, Any] = {"model": FRAGILE, "algorithm": {"name": "scaffold"}}
    sizes, placed = [], []
    ordered, packed = hands.Crew.ordered, hands.packed

    def noted(value: Any) -> Any:
        placed.append(type(value))
        return packed(value)

    def weighed(crew: Any, tasks: Any) -> Iterator[Any]:
        for answer in ordered(crew, tasks):
            sizes.append(nbytes(answer.partial) if hasattr(answer, "partial") else 0)
            yield answer

    monkeypatch.setattr(hands.Crew, "ordered", weighed)
    monkeypatch.setattr(hands, "packed", noted)
    with dragfl.simulate(on_ray(**changes)) as simulation, caplog.at_level(logging.WARNING, "dragfl"):
        records = [simulation.step()]
        wait_until(lambda: both_at_work(simulation))
        first = workers(simulation)
        (orders / "die once").touch()
        records.append(simulation.step())
        assert not list(orders.iterdir()) and len(caplog.messages) == 1
        assert "was lost" in caplog.text and "clients" in caplog.text and "done again" in caplog.text
        records.append(simulation.step())
        found = kept(simulation, records)
    assert found == played(digits(1, **changes))
    assert placed.count(dragfl.Dataset) == 1, "the data travel once, for all workers to come"
    assert 0 < max(sizes) <= 8 * 4 * simulation.federation.info.dim, "sums, whatever the size of a block"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in first))
    assert capfd.readouterr() == ("", "")


def nbytes(value: Any) -> int:
    """Of all arrays in a parcel."""
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
        pytest.param({"algorithm": {"name": "trimmed_mean"}}, id="everyone at once"),
        pytest.param(
            {"algorithm": {"name": "br_drag"}, "attack": {"name": "alie", "attackers": 4}}, id="attackers that collude"
        ),
        pytest.param({"attack": {"name": f"{PARTS}:Remembering", "attackers": 3}}, id="an attack with a memory"),
        pytest.param({"model": {"name": f"{PARTS}:normed", "buffers": "average"}}, id="buffers"),
        pytest.param({"model": {"name": f"{PARTS}:dropping"}}, id="a model that draws"),
        pytest.param({"algorithm": {"aggregate": {"name": f"{PARTS}:First"}}}, id="partials that are views"),
        pytest.param({"model": {"name": "resnet"}, "rounds": 1, "clients": {"per_round": 5}}, id="convolutions"),
        pytest.param({"clients": {"per_round": 2}}, id="one block"),
    ],
)
def test_whatever_is_trained(nodes: Any, changes: dict[str, Any]) -> None:
    assert played(on_ray(**changes)) == played(digits(1, **changes))


@pytest.mark.slow
def test_a_dataset_of_ones_own_travels(nodes: Any, experiment: Load) -> None:
    found = played(experiment(engine={"executor": "ray", "block": 2}))
    assert found == played(experiment(engine={"executor": "local", "block": 2}))


@pytest.mark.slow
def test_an_error_in_a_worker_and_a_block_that_no_worker_survives(orders: Path) -> None:
    """Both are told as they were, and the round can be played again."""
    with dragfl.simulate(on_ray(model=FRAGILE)) as simulation:
        (orders / "fail").touch()
        with pytest.raises(ValueError, match="this layer is broken") as caught:
            simulation.step()
        assert "pool_parts.py" in caught.value.__notes__[0]
        (orders / "fail").unlink()
        (orders / "die always").touch()
        with pytest.raises(Interrupted, match=r"lost 3 times on clients \d+"):
            simulation.step()
        (orders / "die always").unlink()
        records = list(simulation)
        assert kept(simulation, records) == played(digits(1, model=FRAGILE))


@pytest.mark.slow
def test_workers_killed_from_outside(nodes: Any) -> None:
    changes: dict[str, Any] = {"rounds": 6, "model": {"name": "mlp"}, "clients": {"local_steps": 40}}
    with dragfl.simulate(on_ray(**changes)) as simulation:
        records = [simulation.step()]
        while not simulation.done:
            victim = workers(simulation)[0]
            threading.Timer(0.02, os.kill, (victim, signal.SIGKILL)).start()
            records.append(simulation.step())
        assert kept(simulation, records) == played(digits(1, **changes))


@pytest.mark.slow
def test_a_node_that_goes_away(nodes: Any) -> None:
    """Its worker's blocks are done by the others; a node that comes back gets a worker again."""
    with dragfl.simulate(on_ray()) as simulation:
        records = [simulation.step()]
        wait_until(lambda: both_at_work(simulation))
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        records.append(simulation.step())
        nodes.add_node(num_cpus=1)
        records.append(simulation.step())
        assert kept(simulation, records) == played(digits(1))


@pytest.mark.slow
def test_an_interrupt_in_mid_round_starts_anew(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    collect, struck = hands.Crew._collect, []

    def in_second_round(crew: Any) -> Any:
        if crew._call == 3 and not struck:  # calls are folds and scores in turn
            struck.append(True)
            raise KeyboardInterrupt
        return collect(crew)

    monkeypatch.setattr(hands.Crew, "_collect", in_second_round)
    with dragfl.simulate(on_ray()) as simulation:
        records = [simulation.step()]
        with pytest.raises(KeyboardInterrupt):
            simulation.step()
        assert simulation.federation.executor._crew is None and not session.ray().is_initialized()
        records += simulation
        assert kept(simulation, records) == played(digits(1))


@pytest.mark.slow
def test_a_worker_of_another_kind_is_told_of(
    nodes: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hands, "machine", lambda: desk.machine() | {"torch": "1.0"})
    played(on_ray(rounds=1))
    assert len(caplog.messages) == 1 and "and this machine 1.0: the last bits" in caplog.text


@pytest.mark.slow
def test_a_connection_that_somebody_else_made_stays(nodes: Any) -> None:
    session.ray().init(address=nodes.address, log_to_driver=False)
    before = signal.getsignal(signal.SIGTERM)
    try:
        played(on_ray(rounds=1))
        assert session.ray().is_initialized()
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        session.ray().shutdown()


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
    """A value that every process started from here has in its environment; and no cluster but one's own."""
    value = uuid.uuid4().hex
    monkeypatch.setenv("POOL_MARKER", value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return value


def started(folder: Path, rounds: int) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    words = [sys.executable, "script.py", str(rounds)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_ray_of_ones_own_ends_with_the_last_run(marker: str, tmp_path: Path) -> None:
    """Without a cluster one is started; two runs share it; nothing is printed, and nothing is left."""
    with started(tmp_path, 2) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "closed\n"]
        wait_until(lambda: marked(marker) == [process.pid])
        assert process.communicate("\n") == ("", "")
    assert process.returncode == 0


@pytest.mark.slow
def test_a_parent_that_is_killed_leaves_no_process(marker: str, tmp_path: Path) -> None:
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
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, said = process.communicate(timeout=30)
    assert process.returncode == 5, said
    assert "Traceback" not in said and "resume" in said
    wait_until(lambda: not marked(marker))


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with dragfl.simulate(on_ray()) as simulation, pytest.raises(SpecError, match=r"RAY_ADDRESS.*ray start"):
        simulation.step()


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"pip install 'dragfl\[ray\]'"):
        dragfl.simulate(on_ray())


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"name": nn.Sequential(nn.Flatten(), nn.Linear(64, 10))}},
        {"attack": {"name": Strong(3.0), "attackers": 1}},
    ],
    ids=["module", "attack with a memory"],
)
def test_what_a_spec_cannot_spell_out_stays_here(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"engine\.executor.*module:attr.*engine\.executor = 'local'"):
        dragfl.simulate(on_ray(**changes))


def test_only_those_who_ask_get_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    for executor in ("auto", "local"):
        engine = {"executor": executor}
        assert not isinstance(dragfl.simulate(digits(2, engine=engine)).federation.executor, RayBackend)
    assert isinstance(dragfl.simulate(on_ray()).federation.executor, RayBackend)
    with pytest.raises(SpecError, match=r"engine\.executor"):
        dragfl.load({"engine": {"executor": "slurm"}})


def test_a_run_may_go_on_elsewhere(tmp_path: Path) -> None:
    done = dragfl.run(digits(1, rounds=1), tmp_path / "run")
    assert same_result(on_ray(rounds=1).tables(), done.spec)
