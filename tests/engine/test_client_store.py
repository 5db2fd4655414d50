"""What clients keep between rounds, in memory or in a file: by client, committed as a whole, in every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.types import Affine, FederationInfo, LocalResult, NoState, RoundContext, RoundInputs
from tests.conftest import Load, kept_bytes
from tests.engine.liars import Sends


@dataclass(frozen=True)
class Remembering:
    """Each client keeps the sum of its updates and counts its rounds, and leans against the sum when it trains."""

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

    def broadcast(self, state: NoState, context: RoundContext, given: RoundInputs) -> Mapping[str, Tensor]:
        return {"t": torch.tensor(float(context.t))}

    def affine(self, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext) -> Affine:
        return Affine(shift=self.strength * mine["sum"])

    def client_finish(
        self, done: LocalResult, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        assert sent["t"].item() == context.t
        return {"rounds": mine["rounds"]}, {"sum": mine["sum"] + done.delta, "rounds": mine["rounds"] + 1}

    def server_finish(
        self, state: NoState, sums: Mapping[str, Tensor], step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, NoState]:
        assert sums["rounds"].shape == ()
        torch.testing.assert_close(sums["delta"] / sums["count"], step.double(), atol=1e-6, rtol=1e-5)
        return step, state


def remembering(experiment: Load, memory_mb: int = 1024, **changes: Any) -> dragfl.Experiment:
    base = {"rounds": 6, "clients": {"per_round": 3}, "algorithm": {"correction": Remembering()}}
    return experiment(**{**base, "state": {"memory_mb": memory_mb}, **changes})


either_store = pytest.mark.parametrize("memory_mb", [1024, 0], ids=["memory", "slab"])


@either_store
def test_state_is_kept_by_client(experiment: Load, memory_mb: int) -> None:
    simulation = dragfl.simulate(remembering(experiment, memory_mb))
    taken = [0] * 6
    for record in simulation:
        for m in record.clients["client"]:
            taken[m] += 1
    store = simulation.federation.store
    assert [int(store.read(m)["rounds"]) for m in range(6)] == taken
    assert len(set(taken)) > 1
    assert all((store.read(m)["sum"].norm() > 0) == (taken[m] > 0) for m in range(6))


def test_state_changes_the_training(experiment: Load) -> None:
    runs = [dragfl.simulate(remembering(experiment, algorithm={"correction": Remembering(s)})) for s in (0.0, 0.1)]
    for simulation in runs:
        list(simulation)
    assert (runs[0].state.w - runs[1].state.w).norm() > 1e-3


def test_broadcast_and_extras_are_counted_as_bytes(experiment: Load) -> None:
    simulation = dragfl.simulate(remembering(experiment))
    record = simulation.step()
    each = 4 * simulation.federation.model.dim + 4
    assert record.metrics["bytes_down"] == record.metrics["bytes_up"] == 3 * each


@either_store
def test_a_dropped_client_keeps_its_old_state(experiment: Load, memory_mb: int) -> None:
    attack = {"name": Sends(float("nan")), "attackers": 2}
    simulation = dragfl.simulate(remembering(experiment, memory_mb, clients={"per_round": 6}, attack=attack))
    list(simulation)
    liars = simulation.federation.adversary.fixed
    rounds = [int(simulation.federation.store.read(m)["rounds"]) for m in range(6)]
    assert rounds == [0 if m in liars else 6 for m in range(6)]


@either_store
def test_state_survives_a_stop(experiment: Load, tmp_path: Path, memory_mb: int) -> None:
    spec = remembering(experiment, memory_mb, checkpoint={"every": 2})
    whole = dragfl.run(spec, tmp_path / "whole")
    asked = iter([False, False, True])
    with pytest.raises(dragfl.runs.loop.Interrupted, match="stopped after round 3"):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(asked))
    resumed = dragfl.resume(tmp_path / "cut", spec)
    assert kept_bytes(resumed.path) == kept_bytes(whole.path)
