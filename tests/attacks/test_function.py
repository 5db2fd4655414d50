"""A plain function as an attack: `(own, honest, rng)`, its settings, and what it may return."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.attacks import IPM
from dragfl.attacks.function import FunctionAttack, function_attack
from dragfl.config.portable import why_not_portable
from dragfl.errors import Interrupted, PartError, SpecError
from dragfl.testing import check_attack
from dragfl.types import NoState, RoundContext, Updates, View
from tests.conftest import Load, kept_bytes

MODULE = """
def opposite(own, honest, rng, scale=1.0):
    return (-scale * honest.mean(0)).expand_as(own)


def noise(own, rng):
    return rng.normal(size=own.shape)
"""

SPEC = """
rounds = 3
[clients]
total = 6
local_steps = 1
[model]
name = "logistic"
[checkpoint]
every = 1
[attack]
name = "own_attacks_x:opposite"
attackers = 2
scale = 0.5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_attacks_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_attacks_x", None)


def opposite(own: Tensor, honest: Tensor, rng: np.random.Generator, scale: float = 1.0) -> Tensor:
    return (-scale * honest.mean(0)).expand_as(own)


def noise(own: Tensor, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=tuple(own.shape))


def updates(*rows: list[float]) -> Updates:
    return Updates(torch.tensor(rows), torch.ones(len(rows)).double(), torch.arange(len(rows)))


def test_by_hand() -> None:
    """Honest (1, 2) and (3, 4) have the mean (2, 3); twice the negative is (-4, -6), for both attackers."""
    attack = function_attack("attack", opposite, {"scale": 2.0})
    view = View(updates([9.0, 9.0], [8.0, 8.0]), updates([1.0, 2.0], [3.0, 4.0]))
    sent, _ = attack.craft(NoState(), view, RoundContext(0, 0.1, 0))
    assert sent.delta.tolist() == [[-4.0, -6.0], [-4.0, -6.0]]


@pytest.mark.parametrize(("function", "knowledge"), [(opposite, "omniscient"), (noise, "colluding")])
def test_it_satisfies_the_contract(function: Any, knowledge: str) -> None:
    attack = function_attack("attack", function, {})
    assert attack.knowledge == knowledge
    check_attack(attack)


def test_draws_are_addressed_by_round_and_seed() -> None:
    attack, own = function_attack("attack", noise, {}), updates([0.0, 0.0])

    def sent(t: int, seed: int) -> list[Any]:
        rows: list[Any] = attack.craft(NoState(), View(own), RoundContext(t, 0.1, seed))[0].delta.tolist()
        return rows

    assert sent(0, 0) == sent(0, 0) and sent(0, 0) != sent(1, 0) and sent(0, 0) != sent(0, 1)


def test_it_equals_the_built_in_attack(experiment: Load) -> None:
    def final(attack: Any, **settings: float) -> Tensor:
        simulation = dragfl.simulate(experiment(attack={"name": attack, "attackers": 2, **settings}))
        list(simulation)
        return simulation.state.w

    assert torch.equal(final(opposite, scale=0.5), final(IPM(epsilon=0.5)))


def test_the_resolved_spec_and_resume(folder: Path) -> None:
    spec = dragfl.load("x.toml")
    table = spec.tables()["attack"]
    assert (table["name"], table["scale"], table["forge_extras"]) == ("own_attacks_x:opposite", 0.5, True)
    assert dragfl.load(spec.tables()) == spec and why_not_portable(spec, "") is None
    whole = dragfl.run(spec, "whole")
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, "cut", should_stop=lambda: next(asked))
    sys.modules.pop("own_attacks_x")
    assert kept_bytes(dragfl.resume("cut").path) == kept_bytes(whole.path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("attack.scales=2", "attack.scales: own_attacks_x:opposite has no setting 'scales'; did you mean 'scale'"),
        ('attack.scale="x"', "attack.scale: expected `float`, got `str` (value 'x')"),
    ],
)
def test_settings_are_checked(folder: Path, override: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.load("x.toml", override)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda own: own[:, :1], r"sends has shape \(1, 1\); return shape \(1, 2\)"),
        (lambda own: own[0], r"sends has shape \(2,\)"),
        (lambda own: 1, "sends is a int"),
        (lambda own, honest: own / "2", r"raised TypeError: .* \(test_function\.py:\d+\)"),
    ],
)
def test_what_it_returns_is_checked(function: Any, message: str) -> None:
    attack = FunctionAttack(function, "mine")
    with pytest.raises(PartError, match=f"mine {message}"):
        attack.craft(NoState(), View(updates([1.0, 2.0]), updates([3.0, 4.0])), RoundContext(0, 0.1, 0))


def test_not_finite_rows_are_sent_and_dropped_by_the_server(experiment: Load) -> None:
    def broken(own: Tensor) -> Tensor:
        return own * float("nan")

    record = next(iter(dragfl.simulate(experiment(attack={"name": broken, "attackers": 2}))))
    assert record.metrics["dropped_nonfinite"] == 2


def test_without_own(experiment: Load) -> None:
    with pytest.raises(SpecError, match="has no parameter 'own'; an attack is a function"):
        experiment(attack={"name": lambda updates: updates, "attackers": 1})
