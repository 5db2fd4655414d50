"""What clients keep between rounds: by client, committed as a whole, and in every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.engine.client_store import MemoryStore
from dragfl.types import Affine, Done, Given, NoState, Now, Setting
from tests.conftest import Load, kept_bytes
from tests.engine.liars import Sends


@dataclass(frozen=True)
class Remembering:
    """Each client keeps the sum of its updates and counts its rounds, and leans against the sum when it trains."""

    strength: float = 0.1

    @property
    def fields(self) -> Mapping[str, Literal["vector", "scalar"]]:
        return {"sum": "vector", "rounds": "scalar"}

    def init(self, setting: Setting) -> NoState:
        return NoState()

    def needs(self, state: NoState) -> frozenset[str]:
        return frozenset()

    def broadcast(self, state: NoState, now: Now, given: Given) -> Mapping[str, Tensor]:
        return {"t": torch.tensor(float(now.t))}

    def affine(self, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], now: Now) -> Affine:
        return Affine(shift=self.strength * mine["sum"])

    def client_finish(
        self, done: Done, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], now: Now
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        assert sent["t"].item() == now.t
        return {"rounds": mine["rounds"]}, {"sum": mine["sum"] + done.delta, "rounds": mine["rounds"] + 1}

    def server_finish(
        self, state: NoState, sums: Mapping[str, Tensor], step: Tensor, setting: Setting, now: Now
    ) -> tuple[Tensor, NoState]:
        assert sums["rounds"].shape == ()
        torch.testing.assert_close(sums["delta"] / sums["count"], step.double(), atol=1e-6, rtol=1e-5)
        return step, state


def remembering(experiment: Load, **changes: Any) -> dragfl.Experiment:
    base = {"rounds": 6, "clients": {"per_round": 3}, "algorithm": {"correction": Remembering()}}
    return experiment(**{**base, **changes})


def test_state_is_kept_by_client(experiment: Load) -> None:
    simulation = dragfl.simulate(remembering(experiment))
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


def test_a_dropped_client_keeps_its_old_state(experiment: Load) -> None:
    attack = {"name": Sends(float("nan")), "attackers": 2}
    simulation = dragfl.simulate(remembering(experiment, clients={"per_round": 6}, attack=attack))
    list(simulation)
    liars = simulation.federation.fixed_attackers
    rounds = [int(simulation.federation.store.read(m)["rounds"]) for m in range(6)]
    assert rounds == [0 if m in liars else 6 for m in range(6)]


def test_state_survives_a_stop(experiment: Load, tmp_path: Path) -> None:
    spec = remembering(experiment, checkpoint={"every": 2})
    whole = dragfl.run(spec, tmp_path / "whole")
    asked = iter([False, False, True])
    with pytest.raises(dragfl.experiment.runner.Interrupted, match="stopped after round 3"):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(asked))
    resumed = dragfl.resume(tmp_path / "cut", spec)
    assert kept_bytes(resumed.path) == kept_bytes(whole.path)


class TestStore:
    def store(self) -> MemoryStore:
        return MemoryStore({"h": "vector", "n": "scalar"}, dim=3)

    def test_zero_at_first(self) -> None:
        state = self.store().read(4)
        assert state["h"].tolist() == [0.0, 0.0, 0.0]
        assert state["n"].item() == 0.0

    def test_staged_is_not_committed(self) -> None:
        store = self.store()
        store.stage(1, {"h": torch.ones(3), "n": torch.tensor(2.0)})
        assert store.read(1)["n"].item() == 0.0
        store.commit()
        assert store.read(1)["n"].item() == 2.0

    def test_round_trip(self) -> None:
        store = self.store()
        for m in (7, 2):
            store.stage(m, {"h": torch.full((3,), float(m)), "n": torch.tensor(float(m))})
        store.commit()
        tensors = store.tensors()
        assert tensors["client"].tolist() == [2, 7]
        other = self.store()
        other.restore(tensors)
        assert [other.read(m)["h"][0].item() for m in (2, 7, 3)] == [2.0, 7.0, 0.0]

    def test_what_was_staged_before_a_restore_is_gone(self) -> None:
        store = self.store()
        store.stage(1, {"h": torch.ones(3), "n": torch.tensor(2.0)})
        store.restore({})
        store.commit()
        assert store.tensors() == {}

    def test_other_fields_than_declared(self) -> None:
        with pytest.raises(ValueError, match=r"has fields \['x'\], but the correction declares \['h', 'n'\]"):
            self.store().stage(0, {"x": torch.ones(3)})
