"""What a round sends, in vectors of the model's length for each client, from the bytes that the engine counts."""

from __future__ import annotations

import pytest

from dragfl.algorithms import PRESETS
from tests.algorithms.problems import line

VECTORS = {  # (down, up)
    "fedavg": (1, 1),
    "fedprox": (1, 1),
    "scaffold": (2, 2),  # c; the change of c_m
    "adabest": (1, 1),
    "feddyn": (1, 1),
    "feddc": (2, 2),  # s; the change of s_m
    "mime": (3, 2),  # momentum and c; the full gradient
    "mimelite": (2, 2),  # momentum; the full gradient
    "fedavgm": (1, 1),
    "fedadam": (1, 1),
    "fedyogi": (1, 1),
    "fedadagrad": (1, 1),
    "fednova": (1, 1),
    "fedcm": (2, 1),  # the last direction
    "fedexp": (1, 1),
    "auto_scaffold": (2, 2),  # as scaffold
    "drag": (1, 1),
    "br_drag": (1, 1),
    "fltrust": (1, 1),
}


def test_rules_of_the_server_alone_send_what_fedavg_sends() -> None:
    """A preset without a correction only changes what the server does with the updates."""
    alone = {name for name, preset in PRESETS.items() if preset.correction == "none"}
    assert {name for name in alone if VECTORS.get(name, (1, 1)) != (1, 1)} == set()
    assert PRESETS.keys() - VECTORS.keys() <= alone


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_down_and_up(name: str) -> None:
    for record in line({"name": name}).records:
        unit = 4 * 1 * 2  # bytes of a float32 x the length of the model x clients
        assert (record.metrics["bytes_down"] / unit, record.metrics["bytes_up"] / unit) == VECTORS[name]
