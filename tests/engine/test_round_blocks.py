"""Blocks and kept results do not change a round: the same bits, or the same numbers up to rounding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl.aggregates import Drag
from dragfl.algorithms import PRESETS
from dragfl.engine.aggregation import Sums, Total, fold, mean_update
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.errors import Interrupted
from dragfl.types import FederationInfo, NoState, Partial, RoundContext, RoundInputs, Updates
from tests.conftest import Load, kept_bytes

RULES: list[dict[str, Any]] = [
    {"algorithm": {"name": "fedavg"}},
    {"algorithm": {"name": "drag", "c": 0.4}},
    {"algorithm": {"name": "br_drag"}, "root": {"size": 20}},
    {"algorithm": {"name": "fltrust"}, "root": {"size": 20}},
]


def final_model(experiment: dragfl.Experiment) -> torch.Tensor:
    simulation = dragfl.simulate(experiment)
    list(simulation)
    return simulation.state.w


@pytest.mark.parametrize("changes", RULES, ids=lambda c: c["algorithm"]["name"])
def test_block_sizes_agree_under_attack(experiment: Load, changes: dict[str, Any]) -> None:
    whole = final_model(experiment(**changes, engine={"block": 20}, attack={"name": "random_scaling", "attackers": 2}))
    for block in (1, 3, 4):
        cut = experiment(**changes, engine={"block": block}, attack={"name": "random_scaling", "attackers": 2})
        torch.testing.assert_close(final_model(cut), whole, atol=2e-6, rtol=0)
        assert torch.equal(final_model(cut), final_model(cut)), "the same size twice must give the same bits"


def preset(experiment: Load, name: str, **changes: object) -> dragfl.Experiment:
    clients = {"per_round": 4, "local_steps": [1, 3], "lr": 0.05}
    return experiment(rounds=4, algorithm={"name": name}, root={"size": 20}, clients=clients, **changes)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_block_sizes_agree_for_every_algorithm(experiment: Load, name: str) -> None:
    finals = []
    for block in (1, 3, 20):
        simulation = dragfl.simulate(preset(experiment, name, engine={"block": block}))
        start = simulation.state.w.clone()
        records = list(simulation)
        assert simulation.state.w.dtype == torch.float32
        assert torch.isfinite(simulation.state.w).all()
        assert (simulation.state.w - start).norm() > 1e-3
        assert all("skipped" not in record.metrics for record in records)
        finals.append(simulation.state.w)
    for final in finals[1:]:
        torch.testing.assert_close(final, finals[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_algorithm_resumes_with_the_same_bits(experiment: Load, tmp_path: Path, name: str) -> None:
    spec = preset(experiment, name, checkpoint={"every": 3})
    whole = dragfl.run(spec, tmp_path / "whole")
    stop = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(stop))
    assert kept_bytes(dragfl.resume(tmp_path / "cut", spec).path) == kept_bytes(whole.path)


@pytest.mark.parametrize("attack", ["random_scaling", "sign_flip"])
@pytest.mark.parametrize("memory_mb", [1024, 0])
def test_no_client_trains_the_first_round_of_drag_twice(
    experiment: Load, monkeypatch: Any, attack: str, memory_mb: int
) -> None:
    """The updates of round 0 are kept, in memory or in a temporary file, and folded twice: mean, then DRAG."""
    changes = {
        "algorithm": {"name": "drag", "c": 0.4},
        "attack": {"name": attack, "attackers": 2},
        "engine": {"block": 2},
    }
    simulation = dragfl.simulate(experiment(**changes, state={"memory_mb": memory_mb}))
    trained: list[int] = []
    results: list[ClientResults] = []
    train = simulation.federation.backend.train

    def counted(tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        for block in train(tasks):
            trained.extend(block.updates.client.tolist())
            results.append(replace(block, updates=replace(block.updates, delta=block.updates.delta.clone())))
            yield block

    monkeypatch.setattr(simulation.federation.backend, "train", counted)
    before = simulation.state
    simulation.step()
    assert trained == list(range(6)), "each client once"
    fed = simulation.federation
    mean = mean_update(fold(fed.algorithm.aggregate, Total(), block) for block in results)
    rule, context = fed.algorithm.aggregate, RoundContext(0, 0.2, simulation.experiment.seed)
    plan = rule.begin(before.aggregate, context, RoundInputs(mean=mean), fed.info)
    total = Sums(fold(rule, plan, block).partial for block in results).partial
    assert total is not None
    assert torch.equal(before.w + rule.finish(before.aggregate, plan, total)[0], simulation.state.w)


def test_only_the_first_round_of_drag_needs_the_mean(experiment: Load) -> None:
    rule = Drag()
    simulation = dragfl.simulate(experiment(algorithm={"aggregate": rule}))
    assert rule.needs(simulation.state.aggregate) == {"mean"}
    simulation.step()
    assert rule.needs(simulation.state.aggregate) == frozenset()


@dataclass(frozen=True)
class MedianOfAll:
    """The coordinate-wise median, which needs all updates in one block; `seen` records the sizes of the blocks."""

    seen: list[int]

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def needs(self, state: NoState) -> frozenset[str]:
        return frozenset({"all"})

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> NoState:
        assert inputs == RoundInputs(), "no input is needed"
        return NoState()

    def fold(self, plan: NoState, block: Updates) -> Partial:
        self.seen.append(len(block))
        return Partial.of(block, {"median": block.delta.median(0).values}, {"norm": block.norm})

    def finish(
        self, state: NoState, plan: NoState, partial: Partial
    ) -> tuple[torch.Tensor, NoState, Mapping[str, Any]]:
        return partial.sums["median"].float(), state, {"first": partial.sums["median"][0]}


@pytest.mark.parametrize("block", [1, 4, 20])
def test_a_rule_that_needs_all_updates_folds_once(experiment: Load, block: int) -> None:
    seen: list[int] = []
    records = list(dragfl.simulate(experiment(algorithm={"aggregate": MedianOfAll(seen)}, engine={"block": block})))
    assert seen == [6, 6, 6]
    assert isinstance(records[0].metrics["first"], float), "a metric can be a 0-d tensor"
    assert records[0].clients["client"] == list(range(6))


def test_a_rule_gets_the_inputs_that_it_needs(experiment: Load) -> None:
    given: list[RoundInputs] = []

    @dataclass(frozen=True)
    class Needing(Drag):
        wanted: frozenset[str] = frozenset()

        def needs(self, state: Any) -> frozenset[Any]:
            return self.wanted

        def begin(self, state: Any, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> Any:
            given.append(inputs)
            return super().begin(state, context, inputs, info)

    for wanted in ({"root"}, {"mean"}, {"model"}, {"root", "mean", "all"}, set()):
        rule = Needing(wanted=frozenset(wanted), bootstrap="fedavg")
        simulation = dragfl.simulate(experiment(algorithm={"aggregate": rule}, root={"size": 20}))
        sent = simulation.state.w
        simulation.step()
        assert (given[-1].root is not None, given[-1].mean is not None) == ("root" in wanted, "mean" in wanted)
        assert given[-1].model is (sent if "model" in wanted else None)


@pytest.mark.parametrize(("name", "roots", "gradients"), [("br_drag", 1, 0), ("mime", 0, 1), ("fedavg", 0, 0)])
def test_root_and_gradients_are_computed_once_by_the_backend(
    experiment: Load, monkeypatch: pytest.MonkeyPatch, name: str, roots: int, gradients: int
) -> None:
    simulation = dragfl.simulate(experiment(algorithm={"name": name}, root={"size": 20}, engine={"block": 4}))
    backend, calls = simulation.federation.backend, Counter[str]()

    def counted(method: str) -> Callable[..., Any]:
        real = getattr(backend, method)

        def call(*arguments: Any) -> Any:
            calls[method] += 1
            return real(*arguments)

        return call

    for method in ("train_root", "gradients"):
        monkeypatch.setattr(backend, method, counted(method))
    for t in range(1, 4):
        simulation.step()
        assert (calls["train_root"], calls["gradients"]) == (t * roots, t * gradients)
