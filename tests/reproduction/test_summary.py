"""Telemetry of a record, from small logs, and estimates of run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragfl import load
from dragfl.reproduction.run_time import RunTimes, estimate_round_seconds, format_duration
from dragfl.reproduction.summary import TELEMETRY, telemetry
from dragfl.runs.sweep_plan import PlannedRun

METRICS: list[dict[str, Any]] = [
    {"bytes_up": 10, "bytes_down": 20, "step_ratio": 1.0, "mean_norm": 4.0, "pairwise_cosine": 0.1, "step_norm": 1.0,
     "reference_norm": 2.0},
    {"bytes_up": 30, "bytes_down": 20, "step_ratio": 3.0, "mean_norm": 2.0, "pairwise_cosine": 0.3, "step_norm": 3.0,
     "reference_norm": 2.5},
    {"bytes_up": 0, "bytes_down": 20, "skipped": "no usable update"},
    {"bytes_up": 10, "bytes_down": 20, "step_ratio": 0.0, "mean_norm": 3.0, "step_norm": 0.0, "reference_norm": 2.5},
]  # fmt: skip
CLIENTS: list[dict[str, Any]] = [
    {"cosine": [0.5, -0.1, None], "attacker": [False, True, False], "divergence": [0.05, 1.2, None]},
    {"cosine": [-0.2, 0.3], "attacker": [False, True], "divergence": [-0.1, 0.2]},
    {"loss": [1.0]},
]


def test_telemetry() -> None:
    """Bytes 30, 50, 20 and 30 a round: 32.5. A step of 3 is longer than its reference of 2.5, one of 1 and one of 0
    are not. Two of four rounds have no step. Honest cosines 0.5 and -0.2: half point away. Attackers' lambda 1.2 and
    0.2: half are reversed. Of four lambdas one is negative, and shortens."""
    numbers = telemetry(METRICS, CLIENTS)
    assert numbers == {
        "bytes": 32.5,
        "step_ratio": 1.0,
        "mean_norm": 3.0,
        "pairwise_cosine": pytest.approx(0.2),
        "reference_norm": 2.5,
        "over_reference": pytest.approx(1 / 3),
        "skipped": 0.5,
        "against": 0.5,
        "reversed": 0.5,
        "shortened": 0.25,
    }
    assert set(numbers) == set(TELEMETRY)


def test_telemetry_without_data_is_left_out() -> None:
    assert telemetry([{"bytes_up": 1, "bytes_down": 1}], []) == {"bytes": 2, "skipped": 0.0}
    assert telemetry([], []) == {}


def test_pairwise_cosines_are_over_the_first_100_rounds() -> None:
    rows = [{"bytes_up": 0, "bytes_down": 0, "pairwise_cosine": 0.1 if t < 100 else 0.9} for t in range(300)]
    assert telemetry(rows, [])["pairwise_cosine"] == pytest.approx(0.1)


def test_run_time_estimates(tmp_path: Path) -> None:
    """40 clients x 5 steps x 20 samples on the network of 500 units: 0.01 + 4 x 0.035 s a round."""
    experiment = load({"rounds": 100, "clients": {"total": 40, "local_steps": 5, "batch_size": 20},
                       "model": {"name": "mlp", "hidden": 500}})  # fmt: skip
    assert estimate_round_seconds(experiment) == pytest.approx(0.15)
    planned = PlannedRun(tmp_path / "x", experiment)
    assert RunTimes([planned]).remaining([planned]) == pytest.approx(15.0)
    assert (format_duration(15), format_duration(200), format_duration(3 * 3600)) == ("15 s", "3 min", "3.0 h")
