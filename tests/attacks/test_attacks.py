"""What attackers send, as functions and as the objects of a spec."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.attacks import ATTACKS, RandomScaling, SignFlip, random_scaling, sign_flip
from dragfl.errors import SpecError
from dragfl.rng import rng
from dragfl.testing import check_attack
from dragfl.types import FederationInfo, NoState, RoundContext, Updates, View

SETTING = FederationInfo(dim=5, clients=10, per_round=10, segments=(0, 2, 5))
NOW = RoundContext(t=4, lr=0.1, seed=9)


def updates(clients: list[int]) -> Updates:
    delta = torch.stack([torch.arange(1.0, 6.0) + 10 * m for m in clients])
    return Updates(delta, torch.ones(len(clients), dtype=torch.float64), torch.tensor(clients))


def ratios(attack: RandomScaling, clients: list[int], context: RoundContext = NOW) -> Tensor:
    """What each number was multiplied with."""
    own = updates(clients)
    return attack.craft(NoState(), View(own, info=SETTING), context)[0].delta / own.delta


def test_sign_flip() -> None:
    assert sign_flip(torch.tensor([[1.0, -2.0]])).tolist() == [[-1.0, 2.0]]
    assert sign_flip(np.array([[1.0, -2.0]]), scale=3.0).tolist() == [[-3.0, 6.0]]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_array_type_and_dtype_are_kept(kind: type) -> None:
    own = np.ones((2, 3), dtype=kind)
    for sent in (sign_flip(own), random_scaling(own, 3.0, rng(0, "a"))):
        assert isinstance(sent, np.ndarray)
        assert sent.dtype == kind
    assert isinstance(random_scaling(torch.ones(2, 3), 3.0, rng(0, "a")), Tensor)


def test_random_scaling_variance() -> None:
    """20,000 draws: the standard error of a variance of 3 is 3 sqrt(2/20000) = 0.03, of the mean 0.012."""
    p = random_scaling(np.ones((20_000, 1)), 3.0, rng(0, "a"))
    assert p.var() == pytest.approx(3.0, abs=4 * 0.03)
    assert p.mean() == pytest.approx(0.0, abs=4 * 0.0123)


def test_one_factor_for_each_row_or_each_tensor() -> None:
    whole = random_scaling(torch.ones(4, 5), 3.0, rng(0, "a"))
    assert all(len(set(row)) == 1 for row in whole.tolist())
    pieces = random_scaling(torch.ones(4, 5), 3.0, rng(0, "a"), segments=(0, 2, 5))
    assert all(len(set(row[:2])) == 1 and len(set(row[2:])) == 1 and row[1] != row[2] for row in pieces.tolist())
    assert len(set(whole[:, 0].tolist())) == 4


def test_std_is_the_root_of_the_variance() -> None:
    """std = 3 is variance 9: the same draws, sqrt(3) times as large as with variance 3."""
    by_variance, by_std = ratios(RandomScaling(), [1, 2]), ratios(RandomScaling(std=3.0), [1, 2])
    torch.testing.assert_close(by_std, by_variance * 3**0.5, rtol=1e-5, atol=0)


def test_per_tensor_object() -> None:
    factors = ratios(RandomScaling(per_tensor=True), [3])[0]
    torch.testing.assert_close(factors[[0, 2, 2]], factors[[1, 3, 4]])
    assert abs(factors[0] - factors[2]) > 1e-3


def test_the_draw_of_a_client_does_not_depend_on_other_attackers() -> None:
    many = RandomScaling().craft(NoState(), View(updates([2, 5, 7]), info=SETTING), NOW)[0]
    alone = RandomScaling().craft(NoState(), View(updates([5]), info=SETTING), NOW)[0]
    assert torch.equal(many.delta[1], alone.delta[0])
    assert many.client.tolist() == [2, 5, 7]


def test_every_round_and_seed_has_its_own_draw() -> None:
    p = [
        ratios(RandomScaling(), [1], context)[0, 0]
        for context in (NOW, RoundContext(5, 0.1, 9), RoundContext(4, 0.1, 10))
    ]
    assert len({float(value) for value in p}) == 3


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_the_contract(name: str) -> None:
    check_attack(ATTACKS[name]())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SignFlip(scale=0.0), "scale: 0.0; give a positive number"),
        (lambda: SignFlip(scale=float("inf")), "scale: inf"),
        (lambda: RandomScaling(variance=-1.0), "variance: -1.0"),
        (lambda: RandomScaling(std=float("nan")), "std: nan"),
        (lambda: sign_flip(torch.ones(3)), r"shape \(3,\); give \(n, d\)"),
        (lambda: sign_flip(torch.ones(2, 3, dtype=torch.int64)), "torch.int64; convert"),
        (lambda: random_scaling([[1.0]], 3.0, rng(0)), "updates are a list"),
    ],
)
def test_bad_input(make: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()  # type: ignore[operator]


def test_attack_from_a_spec() -> None:
    table = {"name": "random_scaling", "attackers": 4, "std": 3.0, "per_tensor": True, "redraw": True}
    experiment = dragfl.load({"attack": table})
    assert experiment.attack == RandomScaling(std=3.0, per_tensor=True)
    assert (experiment.attackers.attackers, experiment.attackers.redraw) == (4, True)
