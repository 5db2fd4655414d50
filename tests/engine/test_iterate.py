"""The evaluated model: the last one for every algorithm, a mean of recent ones, or the one that a paper evaluates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import dragfl
from dragfl.aggregates.fedexp import FedExP
from dragfl.engine.iterate import Iterate, own_model
from dragfl.errors import Interrupted, SpecError
from tests.conftest import Load, kept_bytes


def follow(iterate: Iterate, models: list[list[float]]) -> list[list[float]]:
    """The evaluated model after each round, from the first model on."""
    first, *later = [torch.tensor(model) for model in models]
    state, out = iterate.init(first), [iterate.select(iterate.init(first), first, None).tolist()]
    for w in later:
        state = iterate.update(state, w)
        out.append(iterate.select(state, w, None).tolist())
    return out


def test_by_hand() -> None:
    """Models 0, 8, 4, 2. The mean of the last two: 0, 4, 6, 3.

    With decay 1/2: 0, (0 + 8) / 2 = 4, (4 + 4) / 2 = 4, (4 + 2) / 2 = 3.
    """
    models = [[0.0], [8.0], [4.0], [2.0]]
    assert follow(Iterate("last"), models) == models
    assert follow(Iterate("average", window=2), models) == [[0.0], [4.0], [6.0], [3.0]]
    assert follow(Iterate("average", window=3), models)[-1] == pytest.approx([14 / 3])
    assert follow(Iterate("ema", decay=0.5), models) == [[0.0], [4.0], [4.0], [3.0]]
    assert follow(Iterate("own"), models) == models, "without another choice in the paper it is the last one"


def test_the_model_that_a_paper_evaluates() -> None:
    """theta = 1, Delta = 2, next theta = 7: FedDyn's average of clients is 3, FedExP's mean of two models is 4."""
    before, step, after = torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([7.0])

    def own(name: str) -> Any:
        return own_model(dragfl.load({"algorithm": {"name": name}}).algorithm, before, step, after)

    for name in ("adabest", "feddyn", "feddc"):
        assert own(name).tolist() == [3.0], name
    assert own("fedexp").tolist() == [4.0]
    for name in ("fedavg", "scaffold", "fedavgm", "drag"):
        assert own(name) is None, name


def test_another_name_of_an_own_model_is_refused() -> None:
    @dataclass(frozen=True)
    class Wrong(FedExP):
        own_iterate: ClassVar[Any] = "client mean"

    algorithm = replace(dragfl.load({}).algorithm, aggregate=Wrong())
    w = torch.zeros(1)
    with pytest.raises(SpecError, match="'client mean'; choose 'client average' or 'mean of two'"):
        own_model(algorithm, w, w, w)


@pytest.mark.parametrize("name", ["fedexp", "adabest", "feddyn", "feddc"])
def test_own_accuracy_is_logged_in_addition(experiment: Load, name: str) -> None:
    """The run is the same whichever model is evaluated; `own` evaluates what the other run logs as own_accuracy."""
    last = list(dragfl.simulate(experiment(algorithm={"name": name})))
    own = list(dragfl.simulate(experiment(algorithm={"name": name}, evaluation={"iterate": "own"})))
    assert [r.metrics["own_loss"] for r in last] == [r.metrics["loss"] for r in own]
    assert [r.metrics["own_accuracy"] for r in last] == [r.metrics["accuracy"] for r in own]
    assert [r.metrics["loss"] for r in last] != [r.metrics["loss"] for r in own]
    assert "own_loss" not in own[-1].metrics
    assert [r.metrics["step_norm"] for r in last] == [r.metrics["step_norm"] for r in own]


def test_the_last_model_is_the_one_sent_out_next(experiment: Load) -> None:
    for name in ("adabest", "feddyn", "feddc", "fedexp", "fedavgm"):
        simulation = dragfl.simulate(experiment(algorithm={"name": name}))
        simulation.step()
        assert torch.equal(simulation.evaluated_model, simulation.state.w), name


def test_fedexp_evaluates_the_average_of_two(experiment: Load) -> None:
    """`own` of FedExP and `average` with a window of 2 are the same model."""
    runs = [
        list(dragfl.simulate(experiment(algorithm={"name": "fedexp"}, evaluation={"iterate": kind})))
        for kind in ("own", "average")
    ]
    assert [r.metrics["loss"] for r in runs[0]] == pytest.approx([r.metrics["loss"] for r in runs[1]], rel=1e-6)


@pytest.mark.parametrize("settings", [{"iterate": "average", "window": 3}, {"iterate": "ema"}, {"iterate": "own"}])
def test_an_interrupted_run_continues_with_the_same_bytes(
    experiment: Load, tmp_path: Path, settings: dict[str, Any]
) -> None:
    spec = experiment(algorithm={"name": "adabest"}, rounds=5, evaluation=settings)
    whole = dragfl.run(spec, tmp_path / "whole")
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: True)
    assert kept_bytes(dragfl.resume(tmp_path / "cut", spec).path) == kept_bytes(whole.path)


def test_the_saved_model_is_the_evaluated_one(experiment: Load, tmp_path: Path) -> None:
    spec = experiment(evaluation={"iterate": "average", "window": 2})
    simulation = dragfl.simulate(spec)
    models = [simulation.state.w.clone()]
    for _ in simulation:
        models.append(simulation.state.w.clone())
    expected = simulation.federation.model.named((models[-2] + models[-1]) / 2, None)
    torch.testing.assert_close(dragfl.run(spec, tmp_path / "r").model(), dict(expected))


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"iterate": "best"}, "evaluation.iterate"),
        ({"window": 0}, "evaluation.window: 0"),
        ({"decay": 1.0}, "evaluation.*decay.*1"),
    ],
)
def test_wrong_settings(experiment: Load, evaluation: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        experiment(evaluation=evaluation)
