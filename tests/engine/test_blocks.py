"""Block size and the way results are kept do not change a round: same bits, or the same up to rounding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import dragfl
from dragfl.aggregates import Drag
from dragfl.build import BLOCK_BYTES, default_block
from dragfl.engine.aggregation import Sums, Total, fold, mean_update
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.kept_results import keep_results
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

    def counted(tasks: Iterable[TrainTask], keep: bool = False) -> Iterator[ClientResults]:
        for block in train(tasks, keep):
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


def test_kept_results_beyond_the_limit_are_in_a_file_with_the_same_bits() -> None:
    """Three blocks of 40 bytes of updates, 24 of extras and 16 of states: the second exceeds a limit of 100 bytes."""
    blocks = [_block(first) for first in (0, 2, 4)]
    kept = keep_results(blocks, 100)
    assert kept[0] is blocks[0]
    for before, after in zip(blocks[1:], kept[1:], strict=True):
        assert after.updates.delta.data_ptr() != before.updates.delta.data_ptr()
        assert torch.equal(after.updates.delta, before.updates.delta)
        assert torch.equal(after.updates.extra["e"], before.updates.extra["e"])
        assert torch.equal(after.states[1]["s"], before.states[1]["s"])


def _block(first: int) -> ClientResults:
    delta = torch.randn(2, 5, generator=torch.Generator().manual_seed(first))
    updates = Updates(delta, torch.ones(2).double(), torch.tensor([first, first + 1]), {"e": delta[:, :3].clone()})
    return ClientResults(updates, (0.1, 0.2), (1, 1), ({"s": delta[0, :2]}, {"s": delta[1, :2]}))


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
