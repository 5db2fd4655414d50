"""theta <- theta + lr Delta."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dragfl.errors import SpecError
from dragfl.schedules import Schedule
from dragfl.server_steps import SGD
from dragfl.types import NoState, RoundContext

W, STEP = torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0])


def test_the_step_is_added() -> None:
    """An update points downhill, so it is added: (1, 2) + (0.5, -1), and half of it with lr = 0.5."""
    w, state = SGD().update(NoState(), STEP, W, RoundContext(0, 0.1, 0))
    assert w.tolist() == [1.5, 1.0]
    assert state == NoState()
    assert SGD(lr=0.5).update(NoState(), STEP, W, RoundContext(0, 0.1, 0))[0].tolist() == [1.25, 1.5]


def test_lr_follows_its_schedule_and_not_the_clients() -> None:
    """From 1 to 0 in 4 rounds: 0.5 in round 2, whatever the clients' rate."""
    rule = SGD(lr=Schedule(1.0, "linear", 0.0, 4))
    assert rule.update(NoState(), STEP, W, RoundContext(2, 0.1, 0))[0].tolist() == [1.25, 1.5]


def test_arguments_are_not_changed() -> None:
    w, step = W.clone(), STEP.clone()
    SGD(lr=2.0).update(NoState(), step, w, RoundContext(0, 0.1, 0))
    assert torch.equal(w, W)
    assert torch.equal(step, STEP)


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf"), "1"])
def test_rates_that_cannot_be_are_refused(lr: Any) -> None:
    with pytest.raises(SpecError, match=r"sgd\.lr: "):
        SGD(lr=lr)
