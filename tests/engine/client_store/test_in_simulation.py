"""Client states in a federation: kept by client id, unchanged by a dropped update, the same bits from either store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.errors import Diverged, Interrupted
from dragfl.types import Affine, FederationInfo, LocalResult, NoState, RoundContext, RoundInputs
from tests.conftest import Load, kept_bytes
from tests.engine.custom_attacks import ConstantAttack


@dataclass(frozen=True)
class SumOfUpdates:
    """Each client keeps the sum of its updates and the number of its rounds; the sum shifts its local direction."""

    strength: float = 0.1

    @property
    def fields(self) -> Mapping[str, Literal["vector", "scalar"]]:
        return {"sum": "vector", "rounds": "scalar"}

    @property
    def sends(self) -> Mapping[str, Literal["vector", "scalar"]]:
        return {"rounds": "scalar"}

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def needs(self, state: NoState) -> frozenset[str]:
        return frozenset()

    def broadcast(self, state: NoState, context: RoundContext, inputs: RoundInputs) -> Mapping[str, Tensor]:
        return {"t": torch.tensor(float(context.t))}

    def affine(self, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext) -> Affine:
        return Affine(shift=self.strength * mine["sum"])

    def client_finish(
        self, result: LocalResult, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        assert sent["t"].item() == context.t
        return {"rounds": mine["rounds"]}, {"sum": mine["sum"] + result.delta, "rounds": mine["rounds"] + 1}

    def server_finish(
        self,
        state: NoState,
        aggregated: Mapping[str, Tensor],
        step: Tensor,
        info: FederationInfo,
        context: RoundContext,
    ) -> tuple[Tensor, NoState]:
        assert aggregated["rounds"].shape == ()
        torch.testing.assert_close(aggregated["delta"] / aggregated["count"], step.double(), atol=1e-6, rtol=1e-5)
        return step, state


def stateful(experiment: Load, memory_mb: int = 1024, **changes: Any) -> dragfl.Experiment:
    base = {"rounds": 6, "clients": {"per_round": 3}, "algorithm": {"correction": SumOfUpdates()}}
    return experiment(**{**base, "state": {"memory_mb": memory_mb}, **changes})


either_store = pytest.mark.parametrize("memory_mb", [1024, 0], ids=["memory", "file"])


@either_store
def test_state_is_kept_by_client(experiment: Load, memory_mb: int) -> None:
    simulation = dragfl.simulate(stateful(experiment, memory_mb))
    rounds = [0] * 6
    for record in simulation:
        for m in record.clients["client"]:
            rounds[m] += 1
    store = simulation.federation.store
    assert [int(store.read(m)["rounds"]) for m in range(6)] == rounds
    assert len(set(rounds)) > 1
    assert all((store.read(m)["sum"].norm() > 0) == (rounds[m] > 0) for m in range(6))


def test_the_state_changes_the_training(experiment: Load) -> None:
    runs = [dragfl.simulate(stateful(experiment, algorithm={"correction": SumOfUpdates(s)})) for s in (0.0, 0.1)]
    for simulation in runs:
        list(simulation)
    assert (runs[0].state.w - runs[1].state.w).norm() > 1e-3


def test_bytes_include_the_broadcast_and_the_extras(experiment: Load) -> None:
    simulation = dragfl.simulate(stateful(experiment))
    record = simulation.step()
    each = 4 * simulation.federation.model.dim + 4
    assert record.metrics["bytes_down"] == record.metrics["bytes_up"] == 3 * each


@either_store
def test_a_dropped_client_keeps_its_old_state(experiment: Load, memory_mb: int) -> None:
    attack = {"name": ConstantAttack(float("nan")), "attackers": 2}
    simulation = dragfl.simulate(stateful(experiment, memory_mb, clients={"per_round": 6}, attack=attack))
    list(simulation)
    attackers = simulation.federation.adversary.fixed
    rounds = [int(simulation.federation.store.read(m)["rounds"]) for m in range(6)]
    assert rounds == [0 if m in attackers else 6 for m in range(6)]


@either_store
def test_a_resumed_run_has_the_same_bits(experiment: Load, tmp_path: Path, memory_mb: int) -> None:
    spec = stateful(experiment, memory_mb, checkpoint={"every": 2})
    whole = dragfl.run(spec, tmp_path / "whole")
    stop = iter([False, False, True])
    with pytest.raises(Interrupted, match="stopped after round 3"):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(stop))
    resumed = dragfl.resume(tmp_path / "cut", spec)
    assert kept_bytes(resumed.path) == kept_bytes(whole.path)


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "feddc", "adabest"])
def test_both_stores_give_the_same_bits(experiment: Load, algorithm: str) -> None:
    def records(memory_mb: int) -> list[dragfl.RoundRecord]:
        spec = experiment(algorithm={"name": algorithm}, clients={"per_round": 4}, state={"memory_mb": memory_mb})
        return list(dragfl.simulate(spec))

    in_memory, in_file = records(1024), records(0)
    assert [r.metrics for r in in_memory] == [r.metrics for r in in_file]
    assert [r.clients for r in in_memory] == [r.clients for r in in_file]


@either_store
def test_a_round_that_diverges_commits_no_client_state(
    experiment: Load, memory_mb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = experiment(algorithm={"name": "scaffold"}, state={"memory_mb": memory_mb})
    whole = [r.metrics for r in dragfl.simulate(spec)]
    simulation = dragfl.simulate(spec)
    simulation.step()
    with monkeypatch.context() as patch, pytest.raises(Diverged):
        patch.setattr("dragfl.engine.server_round.EXPLODED", 0.0)
        simulation.step()
    assert [simulation.step().metrics for _ in range(2)] == whole[1:]
