"""Mimic: the client it copies, and its state after a resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.attacks import FreeRider, Mimic, mimic
from dragfl.attacks.mimic import MimicState
from dragfl.errors import SpecError
from dragfl.types import FederationInfo, RoundContext, Updates, View
from tests.conftest import Load

SETTING = FederationInfo(dim=2, clients=20, per_round=5, segments=(0, 2))


def updates(rows: Tensor, clients: list[int]) -> Updates:
    return Updates(rows, torch.ones(len(rows), dtype=torch.float64), torch.tensor(clients))


def view(honest: Tensor, clients: list[int]) -> View:
    return View(updates(torch.zeros(2, honest.shape[1]), [18, 19]), updates(honest, clients), SETTING)


def test_the_function_copies_a_row() -> None:
    H = np.array([[1.0, 0.0], [0.0, 3.0], [-5.0, 0.0]])
    assert mimic(H, 2).tolist() == [[1.0, 0.0]] * 2
    assert mimic(H, 1, row=2).tolist() == [[-5.0, 0.0]]
    assert mimic(H, 1, z=np.array([0.0, 1.0])).tolist() == [[0.0, 3.0]]
    assert mimic(H, 1, z=np.array([-1.0, 0.0])).tolist() == [[-5.0, 0.0]]
    with pytest.raises(SpecError, match="row=3 of 3"):
        mimic(H, 1, row=3)


def test_z_by_hand() -> None:
    """Two rounds of the formulas of the module, in plain numpy, from the same random start."""
    rounds = [np.array([[2.0, 0.0], [-1.0, 1.0], [0.0, -3.0]]), np.array([[1.0, 1.0], [4.0, 0.0], [0.0, 0.5]])]
    z = RoundContext(0, 0.1, 5).rng("attack").standard_normal(2)
    mean = np.zeros(2)
    state = MimicState()
    for t, H in enumerate(rounds):
        mean = t / (1 + t) * mean + H.mean(0) / (1 + t)
        pull = sum((g - mean) @ z * (g - mean) for g in H)
        z = t / (1 + t) * z + pull / np.linalg.norm(pull) / (1 + t)
        z /= np.linalg.norm(z)
        sent, state = Mimic().craft(state, view(torch.from_numpy(H).float(), [3, 4, 5]), RoundContext(t, 0.1, 5))
        assert state.mean is not None and state.z is not None
        np.testing.assert_allclose(state.z, z, atol=1e-6)
        np.testing.assert_allclose(state.mean, mean, atol=1e-6)
        assert state.client == [3, 4, 5][int((H @ z).argmax())]
        np.testing.assert_allclose(sent.delta, np.tile(H[int((H @ z).argmax())], (2, 1)), atol=1e-6)


def test_the_direction_of_most_difference_is_found() -> None:
    """Honest updates differ along (1, 1) by 3 and across by .1: z must end there, up to its sign."""
    draws = np.random.default_rng(0)
    state = MimicState()
    for t in range(20):
        H = (
            draws.normal(size=(8, 1)) * 3 * np.array([[1.0, 1.0]]) / 2**0.5
            + 0.1 * draws.normal(size=(8, 2))
            + [5.0, 0.0]
        )
        _, state = Mimic().craft(state, view(torch.from_numpy(H).float(), list(range(8))), RoundContext(t, 0.1, 0))
    assert state.z is not None
    assert abs(float(state.z @ torch.tensor([1.0, 1.0])) / 2**0.5) > 0.99


def test_after_the_warm_up_the_client_stays() -> None:
    H = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
    attack, state = Mimic(warm_up=2), MimicState()
    for t in range(2):
        _, state = attack.craft(state, view(H, [3, 4, 5]), RoundContext(t, 0.1, 5))
    chosen, z = state.client, state.z
    moved = torch.stack([-9.0 * z, 9.0 * z, 4.0 * z])  # type: ignore[operator]
    others = [m for m in (3, 4, 5) if m != chosen]
    sent, after = attack.craft(state, view(moved, [chosen, *others]), RoundContext(2, 0.1, 5))
    assert torch.equal(sent.delta[0], moved[0]) and after == state  # copied, though it is now the last along z
    sent, after = attack.craft(state, view(moved, [7, 8, 9]), RoundContext(3, 0.1, 5))
    assert torch.equal(sent.delta[0], moved[1]) and after == state  # not sampled: the furthest of those that are


def test_a_fixed_client_and_no_finite_update() -> None:
    H = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    sent, state = Mimic(client=4).craft(MimicState(), view(H, [3, 4]), RoundContext(0, 0.1, 5))
    assert torch.equal(sent.delta, H[1].repeat(2, 1)) and state == MimicState()
    broken = view(torch.full((2, 2), torch.nan), [3, 4])
    sent, state = Mimic().craft(MimicState(), broken, RoundContext(0, 0.1, 5))
    assert torch.equal(sent.delta, broken.own.delta) and state == MimicState()


@pytest.mark.parametrize("attack", [Mimic(warm_up=3), FreeRider("replay")], ids=["mimic", "replay"])
def test_resumed_equals_uninterrupted(experiment: Load, tmp_path: Path, attack: object) -> None:
    """Stopped after round 3 of 6 and resumed from its checkpoint: the same bits as in one go."""
    table = {"name": attack, "attackers": 2}
    changes = {"clients": {"per_round": 4}, "attack": table, "checkpoint": {"every": 1}}
    whole = dragfl.run(experiment(rounds=6, **changes), tmp_path / "whole")

    def stop(record: dragfl.RoundRecord) -> None:
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, dragfl.errors.Interrupted)):
        dragfl.run(experiment(rounds=6, **changes), tmp_path / "cut", on_record=stop)
    numbers = json.loads((tmp_path / "cut" / "checkpoint.json").read_text())["numbers"]
    if isinstance(attack, Mimic):
        assert numbers["attack.rounds"] >= 1 and "attack.client" in numbers
    resumed = dragfl.resume(tmp_path / "cut", experiment(rounds=6, **changes))
    assert resumed.metrics == whole.metrics and resumed.clients == whole.clients
    a, b = whole.model(), resumed.model()
    assert all(torch.equal(a[name], b[name]) for name in a)
