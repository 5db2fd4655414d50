"""Summaries made by hand: what a judge is given, without any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dragfl.reproduction.claims import Part
from dragfl.reproduction.summary import Record, Summary

LIMIT = 100


def reaching(first: int | None, seed: int = 0, **numbers: float) -> Record:
    """A run of 100 rounds that is at 50 % until it reaches 90 %, in the round given or never."""
    curve = [(t, 0.9 if first is not None and t >= first else 0.5) for t in range(10, LIMIT + 1, 10)]
    return Record(f"run-s{seed}", seed, LIMIT, "rounds", curve, dict(numbers))


def steady(accuracy: float, seed: int = 0, **numbers: float) -> Record:
    return Record(f"run-s{seed}", seed, LIMIT, "rounds", [(t, accuracy) for t in range(10, LIMIT + 1, 10)], numbers)


def summary(panel: str, curves: Mapping[str, Sequence[Record]], **changes: Any) -> Summary:
    known: dict[str, Any] = {
        "dataset": "emnist47", "rounds": LIMIT, "target": 0.8, "quick": False, "changes": [], "tuned": {},
        "tuning": [], "machine": "by hand",
    }  # fmt: skip
    found = {name: {record.seed: record for record in records} for name, records in curves.items()}
    return Summary(panel=panel, curves=found, **{**known, **changes})


def rounds(*firsts: int | None) -> list[Record]:
    """A curve: the first round at the target for each seed."""
    return [reaching(first, seed) for seed, first in enumerate(firsts)]


def accuracies(*values: float) -> list[Record]:
    return [steady(value, seed) for seed, value in enumerate(values)]


def part(**changes: Any) -> Part:
    """DRAG against FedAvg on fig3a: a ratio below 1."""
    return Part(**{"panel": "fig3a", "of": "drag", "versus": ["fedavg"], "how": "ratio", "relation": "<",
                   "threshold": 1.0, **changes})  # fmt: skip
