"""How the cohort is cut up, kept or trained again is nobody's business: same bits, or the same up to rounding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import dragfl
from dragfl.aggregates import Drag
from dragfl.build import BLOCK_BYTES, default_block
from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.worker import ClientResults, TrainTask
from dragfl.types import FederationInfo, NoState, Partial, RoundContext, RoundInputs, Updates
from tests.conftest import Load

RULES: list[dict[str, Any]] = [
    {"algorithm": {"name": "fedavg"}},
    {"algorithm": {"name": "drag", "c": 0.4}},
    {"algorithm": {"name": "br_drag"}, "root": {"size": 20}},
    {"algorithm": {"name": "fltrust"}, "root": {"size": 20}},
]


def final(experiment: dragfl.Experiment) -> torch.Tensor:
    simulation = dragfl.simulate(experiment)
    list(simulation)
    return simulation.state.w


@pytest.mark.parametrize("changes", RULES, ids=lambda c: c["algorithm"]["name"])
def test_block_sizes_agree(experiment: Load, changes: dict[str, Any]) -> None:
    whole = final(experiment(**changes, engine={"block": 20}, attack={"name": "random_scaling", "attackers": 2}))
    for block in (1, 3, 4):
        cut = experiment(**changes, engine={"block": block}, attack={"name": "random_scaling", "attackers": 2})
        torch.testing.assert_close(final(cut), whole, atol=2e-6, rtol=0)
        assert torch.equal(final(cut), final(cut)), "the same size twice must give the same bits"


def test_default_block_is_part_of_the_resolved_spec(experiment: Load) -> None:
    assert dragfl.simulate(experiment()).experiment.engine.block == 32


@pytest.mark.parametrize("dim", [1, 10**5, 416_047, 797_962, 10**9])
def test_default_block(dim: int) -> None:
    """A power of two, at most 32 and at most 32 MB of updates, but at least one client."""
    block = default_block(dim)
    assert block in (1, 2, 4, 8, 16, 32)
    assert block == 1 or 4 * dim * block <= BLOCK_BYTES
    assert block == 32 or 4 * dim * 2 * block > BLOCK_BYTES


@pytest.mark.parametrize("attack", ["random_scaling", "sign_flip"])
def test_training_again_gives_the_bits_of_keeping(experiment: Load, monkeypatch: Any, attack: str) -> None:
    """DRAG's first round looks at the cohort twice."""
    changes = {
        "algorithm": {"name": "drag", "c": 0.4},
        "attack": {"name": attack, "attackers": 2},
        "engine": {"block": 2},
    }
    simulation = dragfl.simulate(experiment(**changes))
    trained: list[int] = []
    train = simulation.federation.worker.train
    monkeypatch.setattr(
        simulation.federation.worker, "train", lambda job: trained.append(len(job.clients)) or train(job)
    )
    simulation.step()
    assert trained == [2] * 6, "three blocks, each trained twice"
    once = dragfl.simulate(experiment(**changes))
    kept: list[ClientResults] = []

    def fold_kept(jobs: Iterable[TrainTask], plan: Any) -> Iterator[BlockResult]:
        kept.extend([] if kept else once.federation.executor.map(jobs, keep=True))
        return (fold(once.federation.algorithm.aggregate, plan, block) for block in kept)

    monkeypatch.setattr(once.federation.executor, "fold", fold_kept)
    once.step()
    assert len(kept) == 3
    assert torch.equal(simulation.state.w, once.state.w)


def test_only_round_zero_of_drag_looks_twice(experiment: Load) -> None:
    rule = Drag()
    simulation = dragfl.simulate(experiment(algorithm={"aggregate": rule}))
    assert rule.needs(simulation.state.aggregate) == {"mean"}
    simulation.step()
    assert rule.needs(simulation.state.aggregate) == frozenset()


@dataclass(frozen=True)
class Gathering:
    """The coordinate-wise median: a rule that must see everybody at once; `seen` notes what it was given."""

    seen: list[int]

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def needs(self, state: NoState) -> frozenset[str]:
        return frozenset({"all"})

    def begin(self, state: NoState, context: RoundContext, given: RoundInputs, info: FederationInfo) -> NoState:
        assert given == RoundInputs(), "nothing was asked for"
        return NoState()

    def fold(self, plan: NoState, block: Updates) -> Partial:
        self.seen.append(len(block))
        return Partial.of(block, {"median": block.delta.median(0).values}, {"norm": block.norm})

    def finish(
        self, state: NoState, plan: NoState, partial: Partial
    ) -> tuple[torch.Tensor, NoState, Mapping[str, Any]]:
        return partial.sums["median"].float(), state, {"first": partial.sums["median"][0]}


@pytest.mark.parametrize("block", [1, 4, 20])
def test_a_rule_that_needs_all_folds_once(experiment: Load, block: int) -> None:
    seen: list[int] = []
    records = list(dragfl.simulate(experiment(algorithm={"aggregate": Gathering(seen)}, engine={"block": block})))
    assert seen == [6, 6, 6]
    assert isinstance(records[0].metrics["first"], float), "a metric may be a tensor of no dimension"
    assert records[0].clients["client"] == list(range(6))


def test_a_rule_gets_exactly_what_it_asks_for(experiment: Load) -> None:
    given: list[RoundInputs] = []

    @dataclass(frozen=True)
    class Asking(Drag):
        wants: frozenset[str] = frozenset()

        def needs(self, state: Any) -> frozenset[Any]:
            return self.wants

        def begin(self, state: Any, context: RoundContext, given_: RoundInputs, info: FederationInfo) -> Any:
            given.append(given_)
            return super().begin(state, context, given_, info)

    for wants in ({"root"}, {"mean"}, {"root", "mean", "all"}, set()):
        rule = Asking(wants=frozenset(wants), bootstrap="fedavg")
        dragfl.simulate(experiment(algorithm={"aggregate": rule}, root={"size": 20})).step()
        assert (given[-1].root is not None, given[-1].mean is not None) == ("root" in wants, "mean" in wants)
