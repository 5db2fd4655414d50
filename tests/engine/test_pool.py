"""A pool of worker processes gives the bits of one process, whatever is trained, by however many, cut anyhow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl.algorithms import PRESETS
from dragfl.attacks import ATTACKS
from dragfl.engine.backends import children, choose
from dragfl.engine.backends.pool import PoolBackend
from tests.conftest import kept_bytes, merged

PARTS = "tests.engine.pool_parts"


@pytest.fixture(autouse=True, scope="module")
def _leave_no_workers() -> Iterator[None]:
    yield
    children._end_idle()


def digits(workers: int, **changes: Any) -> dragfl.Experiment:
    """Eleven unequal clients in blocks of four, and a test set in several blocks."""
    tables: dict[str, Any] = {
        "seed": 4,
        "rounds": 3,
        "data": {"partition": {"kind": "sorted_shards"}},
        "root": {"size": 40},
        "clients": {"total": 14, "per_round": 11, "local_steps": [1, 3], "batch_size": 6, "lr": 0.05},
        "model": {"name": "logistic"},
        "evaluation": {"every": 1, "batch_size": 100},
        "engine": {"block": 4, "workers": workers},
    }
    return dragfl.load(merged(tables, changes))


def played(workers: int, **changes: Any) -> tuple[Any, ...]:
    """Everything that must be the same: model, evaluated model, buffers, metrics and telemetry, what clients keep."""
    with dragfl.simulate(digits(workers, **changes)) as simulation:
        records = [(r.metrics, r.clients) for r in simulation]
        assert isinstance(simulation.federation.executor, PoolBackend) == (workers > 1)
        state = simulation.state
        kept = {name: value.numpy().tobytes() for name, value in simulation.federation.store.tensors().items()}
        vectors = [None if v is None else v.numpy().tobytes() for v in (state.w, simulation.reported, state.buffers)]
        return vectors, records, kept


def agree(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """One process; two workers with a client at a time; three with whole blocks."""
    alone = played(1, **changes)
    whole = choose.PIECE_WORTH
    for workers, worth in ((2, 1.0), (3, whole)):
        monkeypatch.setattr(choose, "PIECE_WORTH", worth)
        assert played(workers, **changes) == alone


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_algorithm(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    agree(monkeypatch, algorithm={"name": name})


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_every_attack(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    agree(monkeypatch, algorithm={"name": "br_drag"}, attack={"name": name, "attackers": 4})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"model": {"name": "resnet"}, "rounds": 1, "clients": {"per_round": 5}}, id="convolutions"),
        pytest.param({"model": {"name": "mlp"}}, id="mlp"),
        pytest.param({"algorithm": {"name": "scaffold"}, "state": {"memory_mb": 0}}, id="slab"),
        pytest.param({"algorithm": {"aggregate": {"chain": ["nnm", "median"], "f": 2}}}, id="chain"),
        pytest.param({"clients": {"local_steps": None, "local_epochs": 1}}, id="epochs"),
        pytest.param({"clients": {"per_round": 2}}, id="fewer clients than workers"),
    ],
)
def test_whatever_is_trained(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    agree(monkeypatch, **changes)


def test_own_parts() -> None:
    """A model that draws as it computes, an attack with a state of tensors, partials that are views of their block."""
    changes: dict[str, Any] = {
        "model": {"name": f"{PARTS}:dropping"},
        "algorithm": {"aggregate": {"name": f"{PARTS}:First"}},
        "attack": {"name": f"{PARTS}:Remembering", "strength": 0.1, "attackers": 3},
    }
    assert played(2, **changes) == played(1, **changes)


def test_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {"model": {"name": f"{PARTS}:normed", "buffers": "average"}}
    alone = played(1, **changes)
    monkeypatch.setattr(choose, "PIECE_WORTH", 1.0)
    assert played(2, **changes) == alone


def test_a_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    whole = dragfl.run(digits(1), tmp_path / "whole")
    asked = iter([True])
    with pytest.raises(dragfl.errors.Interrupted):
        dragfl.run(digits(2), tmp_path / "cut", should_stop=lambda: next(asked))
    assert kept_bytes(dragfl.resume(tmp_path / "cut", digits(3)).path) == kept_bytes(whole.path)


def test_a_call_that_nobody_looked_at_to_the_end_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from dragfl.engine import round as rounds

    monkeypatch.setattr(choose, "PIECE_WORTH", 1.0)
    alone = played(1)
    simulation = dragfl.simulate(digits(2))
    calls: list[int] = []

    class Stumbling(rounds.Sums):
        def add(self, part: Any) -> None:
            calls.append(1)
            if len(calls) == 5:
                raise KeyboardInterrupt
            super().add(part)

    monkeypatch.setattr(rounds, "Sums", Stumbling)
    with simulation:
        simulation.step()
        with pytest.raises(KeyboardInterrupt):
            simulation.step()
        records = list(simulation)
        assert simulation.state.w.numpy().tobytes() == alone[0][0]
        assert [r.metrics for r in records] == [metrics for metrics, _ in alone[1][1:]]


def test_memory_does_not_grow_with_the_cohort() -> None:
    """The region that all results pass through is as large for 8 clients as for 600."""
    sizes = []
    for per_round in (8, 600):
        clients = {"total": 600, "per_round": per_round, "local_steps": 1}
        data = {"partition": {"kind": "resampled", "k": 50}}
        with dragfl.simulate(digits(2, clients=clients, data=data, algorithm={"name": "fedavg"})) as simulation:
            simulation.step()
            executor: Any = simulation.federation.executor
            sizes.append(len(executor._crew.region._map))
    assert sizes[0] == sizes[1]


def test_kept_blocks_are_the_callers_own() -> None:
    with dragfl.simulate(digits(2)) as simulation:
        fed, state = simulation.federation, simulation.state
        from dragfl.engine.round import _Jobs, sample
        from dragfl.types import RoundContext

        context = RoundContext(0, 0.05, 4)
        jobs = _Jobs(fed, state, context, {}, sample(fed, context), frozenset())
        kept = list(fed.executor.map(jobs, keep=True))
        alone = [fed.worker.train(job) for job in jobs]
        for one, other in zip(kept, alone, strict=True):
            assert torch.equal(one.updates.delta, other.updates.delta)
