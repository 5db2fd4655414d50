"""Directions: one update for each class of the root data, their use by rules and attacks, and equal bits everywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import dragfl
from dragfl import build
from dragfl.aggregates import Mean
from dragfl.errors import Interrupted, SpecError
from dragfl.rng import rng
from dragfl.types import DirectionSettings, FederationInfo, RoundContext, RoundInputs
from tests.conftest import Load, kept_bytes
from tests.engine.custom_attacks import RecordingAttack, TamperingAttack
from tests.engine.plain_sgd import sgd

CONTEXT = RoundContext(t=2, lr=0.2, seed=3)


def coned(experiment: Load, settings: dict[str, Any] | None = None, size: int = 30, **changes: Any) -> Any:
    algorithm = {"name": "cone_drag", **(settings or {})}
    return dragfl.simulate(experiment(algorithm=algorithm, root={"size": size}, **changes))


def expected(simulation: Any, batches: list[list[np.ndarray]]) -> Tensor:
    """(K, d) the update of each group with torch.optim.SGD."""
    root, w = simulation.federation.worker.root, simulation.federation.initial
    module = simulation.federation.model.module
    return torch.stack([sgd(module, w, root.x, root.y, steps, 0.2) for steps in batches])


def classes_of(simulation: Any, groups: int = 128) -> list[np.ndarray]:
    labels = simulation.federation.worker.root.y.numpy() % groups
    return [np.flatnonzero(labels == k) for k in np.unique(labels)]


def test_one_step_on_samples_of_each_class(experiment: Load) -> None:
    simulation = coned(experiment, {"samples": 4})
    classes = classes_of(simulation)
    assert len(classes) == 3
    batches = [[rows[rng(3, "directions", 2, k).choice(len(rows), 4, replace=False)]] for k, rows in enumerate(classes)]
    found = simulation.federation.worker.train_directions(simulation.federation.initial, CONTEXT)
    torch.testing.assert_close(found, expected(simulation, batches), atol=1e-6, rtol=0)


def test_a_class_with_fewer_samples_uses_all_it_has(experiment: Load) -> None:
    simulation = coned(experiment, {"samples": 1000})
    classes = classes_of(simulation)
    found = simulation.federation.worker.train_directions(simulation.federation.initial, CONTEXT)
    due = expected(simulation, [[rows] for rows in classes])
    torch.testing.assert_close(found, due, atol=1e-6, rtol=0)


def test_several_local_steps(experiment: Load) -> None:
    simulation = dragfl.simulate(experiment(algorithm={"aggregate": OwnRuleOfThreeSteps()}, root={"size": 30}))
    classes = classes_of(simulation)
    batches = [
        [rows[b] for b in rng(3, "directions", 2, k).integers(0, len(rows), (3, 4))] for k, rows in enumerate(classes)
    ]
    found = simulation.federation.worker.train_directions(simulation.federation.initial, CONTEXT)
    torch.testing.assert_close(found, expected(simulation, batches), atol=1e-6, rtol=0)


def test_groups_of_classes(experiment: Load) -> None:
    """Two groups of three classes: classes 0 and 2, class 1."""
    simulation = coned(experiment, {"samples": 1000, "groups": 2})
    groups = classes_of(simulation, 2)
    labels = simulation.federation.worker.root.y
    assert [sorted(set(labels[rows].tolist())) for rows in groups] == [[0, 2], [1]]
    found = simulation.federation.worker.train_directions(simulation.federation.initial, CONTEXT)
    torch.testing.assert_close(found, expected(simulation, [[rows] for rows in groups]), atol=1e-6, rtol=0)


def test_a_class_without_root_samples_has_no_direction(experiment: Load) -> None:
    """Three root samples, of two of the three classes."""
    simulation = coned(experiment, size=3, seed=5)
    found = simulation.federation.worker.train_directions(simulation.federation.initial, CONTEXT)
    assert len(found) == len(set(simulation.federation.worker.root.y.tolist())) == 2
    assert all(record.metrics["supplied"] >= 0.0 for record in simulation)


def test_classes_without_root_samples_are_reported_once(experiment: Load, caplog: pytest.LogCaptureFixture) -> None:
    coned(experiment)
    assert not caplog.messages
    coned(experiment, size=3, seed=5)
    (message,) = caplog.messages
    assert message == (
        "cone_drag: 1 of 3 classes have no root sample (0), so they have no direction; raise root.size = 3"
    )
    dragfl.simulate(experiment(algorithm={"name": "br_drag"}, root={"size": 3}, seed=5))
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("algorithm", [{"name": "cone_drag"}, {"aggregate": {"chain": ["nnm", "cone_drag"], "f": 0}}])
def test_root_data_of_one_class_and_directions_beyond_memory_are_refused(
    experiment: Load, algorithm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """21 parameters and 3 classes are 252 bytes."""
    one = experiment(algorithm=algorithm, root={"size": 30, "bias": 1.0, "biased_class": 2})
    with pytest.raises(SpecError, match="root: all 30 root samples have class 2"):
        dragfl.simulate(one)
    monkeypatch.setattr(build, "DIRECTION_BYTES", 252)
    spec = experiment(algorithm=algorithm, root={"size": 30})
    dragfl.simulate(spec)
    monkeypatch.setattr(build, "DIRECTION_BYTES", 251)
    with pytest.raises(SpecError, match=r"the directions of 3 classes with 21 .*; lower algorithm.groups to at most 2"):
        dragfl.simulate(spec)


@dataclass(frozen=True)
class OwnRule(Mean):
    """A rule that needs directions and does not declare how they are trained."""

    def needs(self, state: Any) -> frozenset[Any]:
        return frozenset({"directions"})


@dataclass(frozen=True)
class OwnRuleWithSettings(OwnRule):
    direction_settings: ClassVar[DirectionSettings] = DirectionSettings(samples=2)

    def begin(self, state: Any, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> Any:
        assert inputs.root is None and inputs.directions is not None and inputs.directions.shape == (3, info.dim)
        return super().begin(state, context, inputs, info)


@dataclass(frozen=True)
class OwnRuleOfThreeSteps(OwnRule):
    direction_settings: ClassVar[DirectionSettings] = DirectionSettings(samples=4, steps=3)


def test_a_rule_of_the_users_own(experiment: Load) -> None:
    with pytest.raises(SpecError, match=r"OwnRule needs directions .* give it a property direction_settings"):
        experiment(algorithm={"aggregate": OwnRule()}, root={"size": 30})
    with pytest.raises(SpecError, match="needs trusted root data and there is no"):
        experiment(algorithm={"aggregate": OwnRuleWithSettings()})
    assert (
        len(list(dragfl.simulate(experiment(algorithm={"aggregate": OwnRuleWithSettings()}, root={"size": 30})))) == 3
    )


@pytest.mark.parametrize("algorithm", ["cone_drag", "nnm+cone_drag"])
def test_a_round_is_the_one_shot_form(experiment: Load, algorithm: str) -> None:
    """NNM with f = 0 replaces each update by the mean of all."""
    settings: dict[str, Any] = {"f": 0} if "+" in algorithm else {}
    aggregate = {"chain": ["nnm", "cone_drag"], **settings} if settings else "cone_drag"
    attack = RecordingAttack("omniscient")
    simulation = dragfl.simulate(
        experiment(
            algorithm={"aggregate": aggregate}, root={"size": 30}, attack={"name": attack, "attackers": 2}, rounds=1
        )
    )
    worker, w = simulation.federation.worker, simulation.state.w
    context = RoundContext(t=0, lr=0.2, seed=3)
    D, r = worker.train_directions(w, context), worker.train_root(w, context)
    simulation.step()
    (view,) = attack.views
    updates = torch.cat([view.own.delta, view.honest.delta])  # type: ignore[union-attr]
    due = dragfl.functional.aggregate(algorithm, updates, directions=D, root=r, **settings)
    torch.testing.assert_close(simulation.state.w - w, due, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("server", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("correction", ["none", "prox", "adabest", "feddyn", "fedcm"])
def test_corrections_without_extras_and_server_steps(experiment: Load, correction: str, server: str) -> None:
    parts = {"correction": correction, "aggregate": "cone_drag", "server": server}
    clients = {"local_steps": [1, 4], "weight_decay": 0.01, "momentum": 0.0}
    simulation = dragfl.simulate(experiment(algorithm=parts, root={"size": 30}, clients=clients, rounds=2))
    before = simulation.state.w
    for record in simulation:
        assert record.metrics["used"] == 6 and "skipped" not in record.metrics
        assert float((simulation.state.w - before).abs().max()) > 1e-4
        before = simulation.state.w
    assert torch.isfinite(before).all()


@pytest.mark.parametrize("correction", ["scaffold", "feddc", "mime"])
def test_corrections_with_extras_are_refused(experiment: Load, correction: str) -> None:
    with pytest.raises(SpecError, match="correction"):
        experiment(algorithm={"correction": correction, "aggregate": "cone_drag"}, root={"size": 30})


def test_a_white_box_attack_sees_the_directions(experiment: Load) -> None:
    """Copies of them, with the root update as the reference. Other attacks do not see them."""
    views = {}
    for knowledge in ("omniscient", "white_box"):
        attack = RecordingAttack(knowledge)  # type: ignore[arg-type]
        simulation = coned(experiment, attack={"name": attack, "attackers": 2})
        worker, w = simulation.federation.worker, simulation.state.w
        simulation.step()
        (views[knowledge],) = attack.views
    assert views["omniscient"].directions is None
    context = RoundContext(t=0, lr=0.2, seed=3)
    assert torch.equal(views["white_box"].directions, worker.train_directions(w, context))
    assert torch.equal(views["white_box"].reference, worker.train_root(w, context))


def test_a_rule_without_directions_shows_none(experiment: Load) -> None:
    attack = RecordingAttack("white_box")
    table = {"name": attack, "attackers": 2}
    dragfl.simulate(experiment(algorithm={"name": "br_drag"}, root={"size": 30}, attack=table)).step()
    assert attack.views[0].directions is None


def test_writing_into_the_directions_changes_nothing(experiment: Load) -> None:
    models = []
    for attack in (RecordingAttack("white_box"), TamperingAttack("view", "white_box")):
        simulation = coned(experiment, attack={"name": attack, "attackers": 2})
        list(simulation)
        models.append(simulation.state.w)
    assert torch.equal(*models)


@pytest.mark.parametrize("algorithm", [{"name": "cone_drag"}, {"aggregate": {"chain": ["nnm", "cone_drag"], "f": 1}}])
def test_a_resumed_run_has_equal_bytes(experiment: Load, tmp_path: Path, algorithm: dict[str, Any]) -> None:
    """Stopped after the third of six rounds; the label mix is part of the checkpoint."""
    spec = experiment(rounds=6, algorithm=algorithm, root={"size": 30}, checkpoint={"every": 1})
    seen: list[int] = []
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "cut", on_record=lambda r: seen.append(r.round), should_stop=lambda: len(seen) == 3)
    dragfl.resume(tmp_path / "cut", spec)
    dragfl.run(spec, tmp_path / "whole")
    assert kept_bytes(tmp_path / "cut") == kept_bytes(tmp_path / "whole")


def test_the_label_mix_is_a_state(experiment: Load) -> None:
    """Without it the second round is another one."""
    simulation = coned(experiment, {"alpha": 0.1})
    simulation.step()
    state = simulation.state
    assert state.aggregate.gap.shape == (3,)
    forgotten = replace(state, aggregate=type(state.aggregate)())
    simulation.step()
    other = coned(experiment, {"alpha": 0.1})
    other.state = forgotten
    other.step()
    assert not torch.equal(simulation.state.w, other.state.w)
