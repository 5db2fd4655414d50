"""`dragfl.testing.check`: the kind of a part, and what holds for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dragfl
from dragfl.aggregates import Drag, Mean
from dragfl.aggregates.robust import Krum, Median
from dragfl.attacks import ALIE
from dragfl.corrections import CORRECTIONS
from dragfl.data.dataset import from_tensors
from dragfl.data.partitions import IID
from dragfl.errors import SpecError
from dragfl.server_steps import SERVER_STEPS
from dragfl.testing import BrokenContract, Finding, check, check_server_step
from dragfl.testing.parts import KINDS, kind_of
from dragfl.types import NoState

COUNTS = [0]


def mean(updates: Tensor) -> Tensor:
    return updates.mean(0)


def scaled(updates: Tensor, size: float) -> Tensor:
    return size * updates.mean(0)


def first(updates: Tensor) -> Tensor:
    return updates[0]


def unit(updates: Tensor) -> Tensor:
    return updates.mean(0) / updates.mean(0).norm()


def transposed(updates: Tensor) -> Tensor:
    return updates.mean(1)


def opposite(own: Tensor, honest: Tensor, rng: np.random.Generator) -> Tensor:
    return -honest.mean(0).expand_as(own)


def drifting(own: Tensor) -> Tensor:
    COUNTS[0] += 1
    return own + COUNTS[0]


def halves(labels: np.ndarray, clients: int, rng: np.random.Generator) -> Any:
    return np.array_split(np.arange(len(labels) // 2), clients)


def doubled(labels: np.ndarray, clients: int, rng: np.random.Generator) -> Any:
    return [np.arange(10)] * clients


def restless(labels: np.ndarray, clients: int, rng: np.random.Generator) -> Any:
    return np.array_split(np.random.default_rng().permutation(len(labels)), clients)


def empty(labels: np.ndarray, clients: int, rng: np.random.Generator) -> Any:
    return [np.arange(10)] * (clients - 1) + [np.arange(0)]


def data() -> dragfl.Dataset:
    y = torch.arange(30) % 3
    return from_tensors(torch.eye(3)[y], y, torch.eye(3)[y[:2]], y[:2])


def random_data() -> dragfl.Dataset:
    y = torch.arange(30) % 3
    return from_tensors(torch.randn(30, 3), y, torch.eye(3)[y], y)


def algorithm() -> dragfl.Algorithm:
    return dragfl.Algorithm(CORRECTIONS["none"](), Mean(), Half())


def net(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, num_classes))


def with_buffers(in_channels: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(in_channels), nn.Flatten(), nn.Linear(64, classes))


class Idle(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(int(np.prod(shape)), classes), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.used(x.flatten(1))
        return scores


@dataclass(frozen=True)
class Half:
    init = Mean.init

    def update(self, state: NoState, step: Tensor, w: Tensor, context: Any) -> tuple[Tensor, NoState]:
        return w + step / 2, state


@dataclass(frozen=True)
class Decay:
    """It moves the model without a step."""

    init = Mean.init

    def update(self, state: NoState, step: Tensor, w: Tensor, context: Any) -> tuple[Tensor, NoState]:
        return 0.9 * w + step, state


@dataclass(frozen=True)
class InPlace:
    init = Mean.init

    def update(self, state: NoState, step: Tensor, w: Tensor, context: Any) -> tuple[Tensor, NoState]:
        return w.add_(step), state


@dataclass(frozen=True)
class Double:
    init = Mean.init

    def update(self, state: NoState, step: Tensor, w: Tensor, context: Any) -> tuple[Tensor, NoState]:
        return w.double() + step, state


class Counter:
    """It counts its steps on itself."""

    init = Mean.init
    count = 0

    def update(self, state: NoState, step: Tensor, w: Tensor, context: Any) -> tuple[Tensor, NoState]:
        self.count += 1
        return w + step / self.count, state


def holds(findings: list[Finding], *, required: bool) -> dict[str, bool | None]:
    return {finding.name: finding.holds for finding in findings if finding.required == required}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (mean, "aggregate"),
        (Median, "aggregate"),
        (Drag(), "aggregate"),
        (f"nnm+{__name__}:mean", "aggregate"),
        (CORRECTIONS["prox"], "correction"),
        (Half(), "server step"),
        (opposite, "attack"),
        (ALIE, "attack"),
        (algorithm, "algorithm"),
        (algorithm(), "algorithm"),
        (partial(scaled, size=2.0), "aggregate"),
        (net, "model"),
        (nn.Linear(784, 10), "model"),
        (Idle, "model"),
        (halves, "partition"),
        (IID, "partition"),
        ("sorted_shards", "partition"),
        ("median", "aggregate"),
        ("adam", "server step"),
        ("fedprox", "algorithm"),
        ("sign_flip", "attack"),
        (data, "dataset"),
        (data(), "dataset"),
    ],
)
def test_the_kind_is_detected_and_the_contract_holds(part: Any, kind: str) -> None:
    assert kind_of(part) == kind
    shape = {"shape": (784,)} if isinstance(part, nn.Linear) else {}
    findings = check(part, **shape)  # type: ignore[arg-type]
    assert findings and not [finding for finding in findings if finding.failed]


@pytest.mark.parametrize(
    ("part", "broken", "seen"),
    [
        (first, "permutation", "with the updates in another order the step differs"),
        (unit, "step", "is not finite"),
        (transposed, "runs", r"return shape \(12,\)"),
        (drifting, "pure", "craft returned different bits"),
        (InPlace(), "pure", "update changed"),
        (Double(), "model", "torch.float64"),
        (empty, "runs", "client 11 has .*at least one sample"),
        (restless, "deterministic", "differ"),
        (random_data, "deterministic", "seed its generator"),
        (lambda num_classes: nn.LSTM(8, num_classes), "scores|runs", "."),
        (lambda num_classes: 3, "runs", "it must make an nn.Module"),
        (lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "scores", r"\(5, 3\)\), for 10 classes"),
    ],
)
def test_a_broken_contract_is_named(part: Any, broken: str, seen: str) -> None:
    failed = [finding for finding in check(part) if finding.failed and finding.holds is False]
    assert any(re.fullmatch(broken, finding.name) and re.search(seen, finding.text) for finding in failed), failed


def test_the_other_properties_are_still_checked() -> None:
    """`first` breaks one contract; the twelve others hold, and are said to."""
    found = holds(check(first), required=True)
    assert [name for name, value in found.items() if not value] == ["permutation"] and len(found) == 13


def test_nothing_more_is_claimed_of_a_part_that_does_not_run() -> None:
    found = holds(check(transposed), required=True)
    assert found.pop("runs") is False and set(found.values()) == {None}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (mean, {"scale": True, "unanimity": True, "zero": True, "bounded": False}),
        (Median(), {"scale": True, "unanimity": True, "zero": True, "bounded": True}),
        (Krum(), {"scale": True, "unanimity": True, "zero": True, "bounded": True}),
        (Decay(), {"zero": False}),
        (Half(), {"zero": True}),
        (doubled, {"once": False, "all": False}),
        (halves, {"once": True, "all": False}),
        (data, {"train classes": True, "test classes": False}),
        (with_buffers, {"gradient": True, "samples": True, "buffers": False}),
        (Idle, {"gradient": False, "samples": True, "buffers": True}),
    ],
)
def test_information(part: Any, expected: dict[str, bool]) -> None:
    """What need not hold is no failure."""
    findings = check(part)
    assert holds(findings, required=False) == expected
    assert not any(finding.failed for finding in findings)


def test_settings_and_kinds() -> None:
    assert {finding.name for finding in check(f"{__name__}:algorithm")} > {"server step: zero", "correction: runs"}
    assert not any(finding.failed for finding in check("dragfl.aggregates.robust:TrimmedMean", f=1))
    for part, message in ((3, "int is no part"), (lambda a, b: a, "do not show what it is; give its kind")):
        with pytest.raises(SpecError, match=message):
            check(part)
    with pytest.raises(SpecError, match="unknown kind 'rule'; give one of aggregate"):
        check(mean, "rule")
    with pytest.raises(SpecError, match="is an object, so it takes no settings"):
        check(Median(), f=3)
    assert "server step" in KINDS


@pytest.mark.parametrize("name", SERVER_STEPS)
def test_built_in_server_steps_pass(name: str) -> None:
    check_server_step(SERVER_STEPS[name]())


def test_a_server_step_with_a_hidden_state() -> None:
    with pytest.raises(BrokenContract, match="Counter breaks 'pure'") as error:
        check_server_step(Counter())
    assert error.value.name == "pure"
