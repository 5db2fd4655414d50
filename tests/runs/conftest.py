"""The experiment of the arena tests."""

from __future__ import annotations

from typing import Any

import pytest

import dragfl


@pytest.fixture
def tables(toy: dragfl.Dataset) -> dict[str, Any]:
    """Ten clients on the toy data; three of them attack."""
    return {
        "name": "toy",
        "rounds": 3,
        "data": {"dataset": toy},
        "root": {"size": 20},
        "clients": {"total": 10, "local_steps": 2, "batch_size": 5, "lr": 0.2},
        "algorithms": {"br_drag": {"c": 0.4}},
        "attack": {"name": "sign_flip", "scale": 9.0, "attackers": 3, "redraw": True},
        "attacks": {"sign_flip": {"scale": 2.0}},
        "model": {"name": "logistic"},
        "evaluation": {"every": 1},
        "checkpoint": {"every": 1},
    }
