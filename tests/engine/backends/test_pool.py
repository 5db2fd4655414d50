"""A pool of worker processes returns the bits of one process, for any experiment, number of workers and piece size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dragfl
from dragfl import build
from dragfl.aggregates.cone_drag import ConeDrag
from dragfl.algorithms import PRESETS
from dragfl.attacks import ATTACKS
from dragfl.engine.aggregation import Sums
from dragfl.engine.backends import Backend
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.backends.pool import PoolBackend, piece_sizes
from dragfl.engine.backends.worker_process import end_idle_processes
from dragfl.engine.client import TrainTask
from dragfl.engine.kept_results import keep_results
from dragfl.engine.threads import one_thread, own_generator
from dragfl.types import RoundContext
from tests.conftest import kept_bytes, merged

PARTS = "tests.engine.backends.parts"


@pytest.fixture(autouse=True, scope="module")
def _leave_no_workers() -> Iterator[None]:
    yield
    end_idle_processes()


def digits(workers: int, **changes: Any) -> dragfl.Experiment:
    """Eleven clients with unequal data in blocks of six and five, and a test set in several blocks.

    Two workers train and fold a whole block each; three workers train pieces of a block and fold it in another task.
    """
    tables: dict[str, Any] = {
        "seed": 4,
        "rounds": 3,
        "data": {"partition": {"kind": "sorted_shards"}},
        "root": {"size": 40},
        "clients": {"total": 14, "per_round": 11, "local_steps": [1, 3], "batch_size": 6, "lr": 0.05},
        "model": {"name": "logistic"},
        "evaluation": {"every": 1, "batch_size": 100},
        "engine": {"block": 6, "workers": workers},
    }
    return dragfl.load(merged(tables, changes))


def run_digits(workers: int, **changes: Any) -> tuple[Any, ...]:
    """Everything that must be equal: models, buffers, metrics, telemetry and client states."""
    with dragfl.simulate(digits(workers, **changes)) as simulation:
        records = [(r.metrics, r.clients) for r in simulation]
        assert isinstance(simulation.federation.backend, PoolBackend) == (workers > 1)
        state = simulation.state
        kept = {name: value.numpy().tobytes() for name, value in simulation.federation.store.tensors().items()}
        vectors = [
            None if v is None else v.numpy().tobytes() for v in (state.w, simulation.evaluated_model, state.buffers)
        ]
        return vectors, records, kept


def assert_equal_bits(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Compare one process, two workers with one client a task, and three workers with larger pieces."""
    alone = run_digits(1, **changes)
    default = build.PIECE_WORK
    for workers, worth in ((2, 1.0), (3, default)):
        monkeypatch.setattr(build, "PIECE_WORK", worth)
        assert run_digits(workers, **changes) == alone


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_algorithm(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_equal_bits(monkeypatch, algorithm={"name": name})


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_every_attack(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_equal_bits(monkeypatch, algorithm={"name": "br_drag"}, attack={"name": name, "attackers": 4})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"model": {"name": "resnet"}, "rounds": 1, "clients": {"per_round": 5}}, id="convolutions"),
        pytest.param({"model": {"name": "mlp"}}, id="mlp"),
        pytest.param({"algorithm": {"name": "scaffold"}, "state": {"memory_mb": 0}}, id="client states in a file"),
        pytest.param({"algorithm": {"aggregate": {"chain": ["nnm", "median"], "f": 2}}}, id="chain"),
        pytest.param({"algorithm": {"aggregate": {"chain": ["nnm", "cone_drag"], "f": 2}}}, id="directions in a chain"),
        pytest.param(
            {"algorithm": {"name": "cone_drag", "groups": 3}, "attack": {"name": "alie", "attackers": 4}},
            id="directions of groups",
        ),
        pytest.param({"clients": {"local_steps": None, "local_epochs": 1}}, id="epochs"),
        pytest.param({"clients": {"per_round": 2}}, id="fewer clients than workers"),
    ],
)
def test_other_settings(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    assert_equal_bits(monkeypatch, **changes)


def test_parts_of_a_user() -> None:
    """A model with dropout, an attack with a state of tensors, partials that are views of their block."""
    changes: dict[str, Any] = {
        "model": {"name": f"{PARTS}:dropout_model"},
        "algorithm": {"aggregate": {"name": f"{PARTS}:FirstOfBlock"}},
        "attack": {"name": f"{PARTS}:AttackWithState", "strength": 0.1, "attackers": 3},
    }
    assert run_digits(2, **changes) == run_digits(1, **changes)


def test_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {"model": {"name": f"{PARTS}:batch_norm_model", "buffers": "average"}}
    alone = run_digits(1, **changes)
    monkeypatch.setattr(build, "PIECE_WORK", 1.0)
    assert run_digits(2, **changes) == alone


def test_a_plan_that_is_not_a_dataclass_is_folded_in_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PIECE_WORK", 1.0)
    changes: dict[str, Any] = {"algorithm": {"aggregate": f"{PARTS}:PlanInDict"}}
    assert run_digits(2, **changes) == run_digits(1, **changes)


def block_tasks(simulation: Any, states: bool) -> list[TrainTask]:
    """The first eleven clients as blocks of four, two of them malicious."""
    fed, state = simulation.federation, simulation.state
    context = RoundContext(0, 0.05, 4)
    sent = {} if state.buffers is None else {"buffers": state.buffers}
    return [
        TrainTask(
            clients, state.w, sent, context,
            tuple(fed.store.read(m) for m in clients) if states else (),
            frozenset({2, 9}).intersection(clients), state.attack,
        )
        for clients in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10))
    ]  # fmt: skip


def assert_equal_calls(backend: Backend, simulation: Any) -> None:
    """`gradients`, `train_root` and `train` return the bits of one process, and may be called again."""
    fed, state = simulation.federation, simulation.state
    alone = LocalBackend(fed.worker)

    def copies(results: Iterable[Any]) -> list[tuple[list[Any], ...]]:
        return [(u.delta.tolist(), u.weight.tolist(), u.client.tolist()) for u in results]

    for _ in range(2):
        tasks = block_tasks(simulation, states=False)
        assert copies(backend.gradients(tasks)) == copies(alone.gradients(tasks))
        root = state.w, tasks[0].context, state.buffers
        assert torch.equal(backend.train_root(*root), alone.train_root(*root))
        if isinstance(fed.algorithm.aggregate, ConeDrag):
            assert torch.equal(backend.train_directions(*root), alone.train_directions(*root))
        tasks = block_tasks(simulation, states=True)
        kept = keep_results(backend.train(tasks), 1 << 30, copy=backend.reuses_memory)
        assert copies(r.updates for r in kept) == copies(r.updates for r in alone.train(tasks))
        assert backend.scores(state.w, state.buffers) == alone.scores(state.w, state.buffers)


@pytest.mark.parametrize(
    "changes",
    [
        {"attack": {"name": "label_flip", "attackers": 3}},
        {"model": {"name": f"{PARTS}:dropout_model"}},
        {"model": {"name": f"{PARTS}:batch_norm_model", "buffers": "average"}},
        {"model": {"name": f"{PARTS}:dropout_model"}, "algorithm": {"name": "cone_drag"}},
    ],
    ids=["data poisoning", "dropout", "buffers", "directions"],
)
@pytest.mark.parametrize("worth", [1.0, 1e9], ids=["one client a task", "whole blocks"])
def test_gradients_and_root_update(monkeypatch: pytest.MonkeyPatch, worth: float, changes: dict[str, Any]) -> None:
    monkeypatch.setattr(build, "PIECE_WORK", worth)
    with dragfl.simulate(digits(2, **changes)) as simulation, one_thread(), own_generator():
        assert_equal_calls(simulation.federation.backend, simulation)


def test_a_run_resumes_with_another_number_of_workers(tmp_path: Path) -> None:
    whole = dragfl.run(digits(1), tmp_path / "whole")
    asked = iter([True])
    with pytest.raises(dragfl.errors.Interrupted):
        dragfl.run(digits(2), tmp_path / "cut", should_stop=lambda: next(asked))
    assert kept_bytes(dragfl.resume(tmp_path / "cut", digits(3)).path) == kept_bytes(whole.path)


def test_a_call_that_was_not_read_to_its_end_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PIECE_WORK", 1.0)
    alone = run_digits(1)
    simulation = dragfl.simulate(digits(2))
    calls: list[int] = []

    add = Sums.add

    def interrupted(sums: Sums, part: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        add(sums, part)

    monkeypatch.setattr(Sums, "add", interrupted)
    with simulation:
        simulation.step()
        with pytest.raises(KeyboardInterrupt):
            simulation.step()
        records = list(simulation)
        assert simulation.state.w.numpy().tobytes() == alone[0][0]
        assert [r.metrics for r in records] == [metrics for metrics, _ in alone[1][1:]]


def test_memory_does_not_grow_with_the_cohort() -> None:
    """The shared memory is as large for 8 clients as for 600."""
    sizes = []
    for per_round in (8, 600):
        clients = {"total": 600, "per_round": per_round, "local_steps": 1}
        data = {"partition": {"kind": "resampled", "k": 50}}
        with dragfl.simulate(digits(2, clients=clients, data=data, algorithm={"name": "fedavg"})) as simulation:
            simulation.step()
            executor: Any = simulation.federation.backend
            sizes.append(executor.memory.size)
    assert sizes[0] == sizes[1] > 0


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 70), st.sampled_from([1, 4]))
def test_piece_sizes(clients: int, workers: int, piece: int, group: int) -> None:
    """None is empty, groups are not divided, and each worker has as many pieces where there are enough groups."""
    sizes = piece_sizes(clients, workers, piece, group)
    assert sum(sizes) == clients and min(sizes) >= 1 and max(sizes) <= max(piece, group) + group
    assert all(size % group == 0 for size in sizes[:-1])
    assert max(sizes[:-1], default=0) - min(sizes[:-1], default=0) <= group
    assert len(sizes) % workers == 0 or len(sizes) == -(-clients // group)
