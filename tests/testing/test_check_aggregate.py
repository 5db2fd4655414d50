"""check_aggregate accepts rules that satisfy the contract and names the property that others violate."""

from __future__ import annotations

import doctest
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dragfl.aggregates import AGGREGATES, BRDrag, Drag, FLTrust, Mean
from dragfl.schedules import Schedule
from dragfl.testing import BrokenContract, check_aggregate
from dragfl.types import NoState, Partial, Updates

RULES = [
    Mean(),
    Mean(weighting="samples"),
    Drag(c=0.25),
    Drag(c=0.0),
    Drag(c=1.0, alpha=0.2),
    Drag(c=Schedule(0.5, "inverse_sqrt"), alpha=0.6, divergence="angle"),
    Drag(c=0.1, alpha=0.5, divergence="shallow", variant="authors"),
    Drag(c=0.1, bootstrap="fedavg"),
    BRDrag(c=0.5),
    BRDrag(c=1.0, divergence="shallow"),
    BRDrag(c=0.1, variant="authors"),
    FLTrust(),
    FLTrust(on_no_trust="root"),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_built_in_aggregates_pass(rule: Any) -> None:
    check_aggregate(rule)


@pytest.mark.parametrize("name", AGGREGATES)
def test_registered_aggregates_pass(name: str) -> None:
    check_aggregate(AGGREGATES[name]())


@pytest.mark.parametrize(("dim", "segments"), [(1, None), (5, (0, 5))])
def test_built_in_aggregates_pass_in_other_shapes(dim: int, segments: tuple[int, ...] | None) -> None:
    for rule in (Mean(), Drag(variant="authors"), BRDrag(variant="authors"), FLTrust()):
        check_aggregate(rule, dim=dim, segments=segments, seed=3)


def test_a_long_vector_passes() -> None:
    check_aggregate(BRDrag(variant="authors"), dim=9000, segments=(0, 1, 8500, 9000))


class Rule:
    """A mean without telemetry; each subclass violates one property."""

    def init(self, info: Any) -> Any:
        return NoState()

    def needs(self, state: Any) -> Any:
        return frozenset()

    def begin(self, state: Any, context: Any, given: Any, info: Any) -> Any:
        return NoState()

    def weights(self, block: Updates) -> Tensor:
        return torch.ones(len(block))

    def fold(self, plan: Any, block: Updates) -> Any:
        return Partial.of(block, {"A": self.weights(block) @ block.delta}, {})

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return (partial.sums["A"] / partial.count).float(), state, {}


class MutatesBlock(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        block.delta.clamp_(-1.0, 1.0)
        return super().fold(plan, block)


class MutatesNorm(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        block.norm.clamp_(max=1.0)
        return super().fold(plan, block)


@dataclass(frozen=True)
class Momentum:
    m: Any = None


class MutatesState(Rule):
    def init(self, info: Any) -> Any:
        return Momentum(torch.zeros(info.dim))

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        step = partial.mean
        return state.m.mul_(0.9).add_(step).clone(), state, {}


class KeepsOnSelf(Rule):
    rounds = 0

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        self.rounds += 1
        return super().finish(state, plan, partial)


class DrawsGlobally(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return Partial.of(block, {"A": block.delta.sum(0), "noise": torch.randn(())}, {})


class DrawsFromOwnGenerator(Rule):
    def weights(self, block: Updates) -> Tensor:
        return torch.from_numpy(np.random.default_rng().normal(1.0, 0.1, len(block)).astype(np.float32))


class NotAdditive(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return Partial.of(block, {"A": block.delta.mean(0)}, {})

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return partial.sums["A"].float(), state, {}


class OrderDependent(Rule):
    def weights(self, block: Updates) -> Tensor:
        return torch.arange(1.0, len(block) + 1)


class PositionInBlock(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return replace(super().fold(plan, block), per_client={"position": torch.arange(len(block))})


class ReadsClientId(Rule):
    def weights(self, block: Updates) -> Tensor:
        return torch.where(block.client < 3, 0.5, 1.0)


class NaNOnZeroRow(Rule):
    def weights(self, block: Updates) -> Tensor:
        return (1.0 / block.norm).float()


class OverflowsAt1e30(Rule):
    def weights(self, block: Updates) -> Tensor:
        return 1.0 / (1.0 + block.delta.square().sum(1).square())

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return (partial.sums["A"] / partial.count).float(), state, {"size": float(partial.total.square().sum())}


class StateIsDict(Rule):
    def init(self, info: Any) -> Any:
        return {"m": torch.zeros(info.dim)}


@dataclass
class NotFrozen:
    m: float = 0.0


class StateIsNotFrozen(Rule):
    def init(self, info: Any) -> Any:
        return NotFrozen()


class StateHoldsList(Rule):
    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return partial.mean, Momentum([1.0]), {}


class HidesState(Rule):
    """Keeps a tensor outside the fields of its state, where no checkpoint finds it."""

    def init(self, info: Any) -> Any:
        return Momentum()

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        last = getattr(state, "last", None)
        step = partial.mean if last is None else 0.5 * (partial.mean + last)
        after = Momentum()
        object.__setattr__(after, "last", step)
        return step, after, {}


class WrongNeeds(Rule):
    def needs(self, state: Any) -> Any:
        return {"median"}


class UnaskedMean(Rule):
    def begin(self, state: Any, context: Any, given: Any, info: Any) -> Any:
        return Momentum(given.mean.norm())


class PlanIsTuple(Rule):
    def begin(self, state: Any, context: Any, given: Any, info: Any) -> Any:
        return (1, 2)


class WrongCount(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return replace(super().fold(plan, block), count=1)


class WrongTotal(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return replace(super().fold(plan, block), total=block.delta.mean(0) * (len(block) + 1))


class ForgetsExtra(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return replace(super().fold(plan, block), extra={})


class ShortColumn(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return replace(super().fold(plan, block), per_client={"norm": torch.zeros(len(block) + 1)})


class DoubleStep(Rule):
    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return partial.total.double() / partial.count, state, {}


class TensorMetric(Rule):
    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return partial.mean, state, {"size": partial.mean.norm()}


class InfiniteMetric(Rule):
    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return partial.mean, state, {"size": float("inf")}


class NotPickled(Rule):
    def __init__(self) -> None:
        self.scale = lambda x: x


BROKEN = [
    (MutatesBlock, "pure", r"fold changed its Updates\.delta \("),
    (MutatesNorm, "pure", r"fold changed its Updates\.norm"),
    (MutatesState, "pure", r"finish changed its Momentum\.m"),
    (KeepsOnSelf, "pure", r"finish changed the part"),
    (DrawsGlobally, "pure", r"fold changed the global generator of\['torch'\]"),
    (DrawsFromOwnGenerator, "pure", r"fold returned different bits in the result\.sums\['A'\]"),
    (NotAdditive, "additive", r"blocks of \[3, 4\] and in one block the step differs by \d"),
    (OrderDependent, "permutation", r"in another order the step differs by \d"),
    (PositionInBlock, "permutation", r"row for row, per_client\['position'\] differs by"),
    (ReadsClientId, "anonymous", r"other client ids changed the step by 0\.\d+"),
    (NaNOnZeroRow, "step", r"\(one update zero\) holds 12 non-finite numbers, such as nan"),
    (OverflowsAt1e30, "extremes", r"'size' is inf, a float \(one update of size 1e30\)"),
    (StateIsDict, "state", r"init returned a dict as state"),
    (StateIsNotFrozen, "state", r"init returned a NotFrozen as state"),
    (StateHoldsList, "state", r"finish returned a state whose m is a list"),
    (HidesState, "state", r"rebuilt from its fields returned different bits in the step"),
    (WrongNeeds, "needs", r"needs\(\) returned \{'median'\}"),
    (UnaskedMean, "runs", r"begin raised AttributeError"),
    (PlanIsTuple, "plan", r"begin returned a tuple"),
    (WrongCount, "partial", r"count is 1 for 7 updates"),
    (WrongTotal, "partial", r"against the sum of the updates the total differs by"),
    (ForgetsExtra, "partial", r"extra has the shapes \{\}, expected \{'steps': \(\), 'extra': \(12,\)\}"),
    (ShortColumn, "partial", r"per_client\['norm'\] is \(8,\) for 7 updates"),
    (DoubleStep, "step", r"the step \(ordinary updates\) is torch.float64 \(12,\), with d = 12"),
    (TensorMetric, "metrics", r"'size' is tensor\(.*\), a Tensor"),
    (InfiniteMetric, "metrics", r"'size' is inf"),
    (NotPickled, "worker", r"the rule cannot be sent to a worker"),
]


@pytest.mark.parametrize("part", ["aggregate", "correction", "attack"])
def test_doctests_pass(part: str) -> None:
    seen = doctest.testmod(import_module(f"dragfl.testing.{part}"))
    assert (seen.attempted, seen.failed) == (2, 0)


def test_the_base_rule_passes() -> None:
    check_aggregate(Rule())


@pytest.mark.parametrize(("rule", "name", "seen"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_broken_aggregates_fail_by_name(rule: type[Rule], name: str, seen: str) -> None:
    with pytest.raises(BrokenContract, match=seen) as caught:
        check_aggregate(rule())
    assert str(caught.value).startswith(f"{rule.__name__} breaks '{name}': ")
    assert ". The contract: " in str(caught.value)


def test_a_property_can_be_skipped() -> None:
    check_aggregate(OverflowsAt1e30(), skip={"extremes"})
    with pytest.raises(ValueError, match=r"skip names \['colour'\]; the properties are runs, needs"):
        check_aggregate(Rule(), skip={"colour"})


def test_a_broken_contract_is_an_assertion() -> None:
    assert issubclass(BrokenContract, AssertionError)


def test_a_rule_of_all_updates_need_not_be_additive() -> None:
    check_aggregate(Median())
    with pytest.raises(BrokenContract, match="'additive'"):
        check_aggregate(MedianOfBlock())


class MedianOfBlock(Rule):
    def fold(self, plan: Any, block: Updates) -> Any:
        return Partial.of(block, {"median": block.delta.quantile(0.5, dim=0)}, {})

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return partial.sums["median"].float(), state, {}


class Median(MedianOfBlock):
    def needs(self, state: Any) -> Any:
        return frozenset({"all"})
