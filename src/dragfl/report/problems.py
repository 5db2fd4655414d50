"""Which runs may be ranked together: those with the same dataset, partition and attack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dragfl.report.labels import NO_ATTACK, attack_name, flatten, format_value, short_name

NOT_PART_OF_IT = ("name", "kind", "exceeds_f", "forge_extras")  # names, and what follows from the algorithm

Problem = tuple[str, str, str]  # dataset, partition and attack with their settings, as text


def problem_of(spec: Mapping[str, Any]) -> Problem:
    """`("digits", "dirichlet_class (a=0.1)", "sign_flip (attackers=6, scale=1.0)")`."""
    data = spec.get("data", {})
    partition, attack = data.get("partition", {}), attack_name(spec)
    return (
        format_value(data.get("dataset")),
        _describe(short_name(str(partition.get("kind", "iid"))), partition),
        NO_ATTACK if attack is None else _describe(attack, spec["attack"]),
    )


def _describe(name: str, table: Mapping[str, Any]) -> str:
    settings = [f"{k}={format_value(v)}" for k, v in flatten(table).items() if k not in NOT_PART_OF_IT]
    return f"{name} ({', '.join(settings)})" if settings else name


def headings(problems: Iterable[Problem]) -> dict[Problem, str]:
    """Problem -> the parts in which the problems differ, as short as they stay different; "" for a single one.

    The dataset is always named where it differs.
    """
    known = list(dict.fromkeys(problems))
    columns = list(zip(*known, strict=True))
    shown = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    short = {i: _shortened(columns[i]) for i in shown}
    return {problem: ", ".join(short[i][problem[i]] for i in shown) for problem in known}


def _shortened(values: Iterable[str]) -> dict[str, str]:
    """Without the settings in brackets, where the names alone differ."""
    distinct = set(values)
    names = {value: value.partition(" (")[0] for value in distinct}
    return names if len(set(names.values())) == len(distinct) else {value: value for value in distinct}
