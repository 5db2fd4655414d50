"""What leaves the device in a round of every algorithm, robust rule and attack, on a fake device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from dragfl.algorithms import PRESETS
from dragfl.attacks import ATTACKS
from dragfl.config.spec import load
from dragfl.runs.simulation import Simulation

from .fake_device import NAME, FakeDevice

COHORT = 8
MOST_VALUES = COHORT**2  # of one transfer: distances of all pairs, for MDA and FLAME. The model has 610 numbers
MOST_TRANSFERS = 10 * COHORT  # in a round: losses, norms, cosines, counts
SEARCH = 2000  # adaptive_fltrust: 10 x 10 queries for each of 3 attackers, a few numbers each
TARGETS = {"adaptive_fltrust": "fltrust", "adaptive_br_drag": "br_drag", "adaptive_cone": "cone_drag"}


def tables(device: str, algorithm: str, attack: str | None = None) -> Mapping[str, Any]:
    return {
        "rounds": 4,
        "data": {"dataset": "digits", "partition": {"kind": "dirichlet_class", "a": 0.5}},
        "clients": {"total": 12, "per_round": COHORT, "local_steps": 2, "batch_size": 4, "lr": 0.05},
        "model": {"name": "mlp", "hidden": 8},
        "algorithm": {"name": algorithm},
        "root": {"size": 60},
        "evaluation": {"every": 2},
        "engine": {"device": device, "workers": 1},
        **({"attack": {"name": attack, "attackers": 3}} if attack else {}),
    }


def check(algorithm: str, attack: str | None = None) -> None:
    """Four rounds on the fake device: transfers of the last two, an evaluation included, and the same model."""
    with FakeDevice() as device, Simulation(load(tables(NAME, algorithm, attack))) as simulation:
        simulation.step()
        simulation.step()  # the first evaluation reads the labels, once
        device.transfers.clear()
        simulation.step()
        simulation.step()
        found, w = simulation.state.w.cpu(), simulation.state.w
        transfers = device.transfers[:-1]
        assert device.holds(w)
    large = {transfer for transfer in transfers if transfer.values > MOST_VALUES}
    assert not large
    assert len(transfers) <= 2 * (SEARCH if attack == "adaptive_fltrust" else MOST_TRANSFERS)
    with Simulation(load(tables("cpu", algorithm, attack))) as simulation:
        for _ in range(4):
            simulation.step()
    torch.testing.assert_close(found, simulation.state.w, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("algorithm", PRESETS)
def test_algorithm(algorithm: str) -> None:
    check(algorithm)


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack(attack: str) -> None:
    check(TARGETS.get(attack, "fedavg"), attack)


def test_tensors_of_both_devices_do_not_mix() -> None:
    with FakeDevice(), pytest.raises(RuntimeError, match="same device"):
        torch.zeros(3, device=NAME) + torch.zeros(3)


def test_what_leaves_the_device_is_noted() -> None:
    """One number by float(), three by tolist(), two by copy_()."""
    with FakeDevice() as device:
        x = torch.tensor([1.0, 2.0, 3.0], device=NAME)
        assert x.device.type == NAME and float(x.sum()) == 6.0
        assert x.tolist() == [1.0, 2.0, 3.0]
        torch.empty(2).copy_(x[1:])
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
    assert [transfer.values for transfer in device.transfers] == [1, 3, 2]
    assert device.transfers[0].line == "outside of dragfl"
