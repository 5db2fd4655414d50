"""Summaries and comparisons for tests of verdicts, made without any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dragfl.reproduction.claims import Comparison
from dragfl.reproduction.summary import Record, Summary

LIMIT = 100


def record_reaching(first: int | None, seed: int = 0, **numbers: float) -> Record:
    """A run of 100 rounds with 50 % accuracy, and with 90 % from round `first` on; None: never."""
    curve = [(t, 0.9 if first is not None and t >= first else 0.5) for t in range(10, LIMIT + 1, 10)]
    return Record(f"run-s{seed}", seed, LIMIT, "rounds", curve, dict(numbers))


def record_at(accuracy: float, seed: int = 0, **numbers: float) -> Record:
    return Record(f"run-s{seed}", seed, LIMIT, "rounds", [(t, accuracy) for t in range(10, LIMIT + 1, 10)], numbers)


def make_summary(figure: str, curves: Mapping[str, Sequence[Record]], **changes: Any) -> Summary:
    fields: dict[str, Any] = {
        "dataset": "emnist47", "rounds": LIMIT, "target": 0.8, "quick": False, "changes": [], "tuned": {},
        "tuning": [],
    }  # fmt: skip
    records = {name: {record.seed: record for record in values} for name, values in curves.items()}
    return Summary(figure=figure, curves=records, **{**fields, **changes})


def rounds(*firsts: int | None) -> list[Record]:
    """A curve from the first round at the target of each seed."""
    return [record_reaching(first, seed) for seed, first in enumerate(firsts)]


def accuracies(*values: float) -> list[Record]:
    return [record_at(value, seed) for seed, value in enumerate(values)]


def compare(**changes: Any) -> Comparison:
    """DRAG against FedAvg on fig3a: a ratio below 1."""
    return Comparison(**{"figure": "fig3a", "curve": "drag", "versus": ["fedavg"], "statistic": "ratio",
                         "relation": "<", "threshold": 1.0, **changes})  # fmt: skip
