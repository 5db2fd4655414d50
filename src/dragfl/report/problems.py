"""Which runs may be ranked together: those with the same dataset, partition and attack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragfl.report.groups import SHORT, Group, fingerprints
from dragfl.report.labels import NO_ATTACK, attack_name, flatten, format_value, make_labels, partition_text

NOT_PART_OF_IT = ("name", "exceeds_f", "forge_extras")  # names, and what follows from the algorithm

Problem = tuple[str, str, str]  # dataset, partition and attack with their settings, as text


def problem_of(spec: Mapping[str, Any], version: str = "") -> Problem:
    """`("digits", "dirichlet_class a=0.1", "sign_flip (attackers=6, scale=1.0)")`; `version` of the data."""
    data, attack = spec.get("data", {}), attack_name(spec)
    return (
        format_value(data.get("dataset")) + (f" (data {version})" if version else ""),
        partition_text(spec),
        NO_ATTACK if attack is None else _describe(attack, spec["attack"]),
    )


def _describe(name: str, table: Mapping[str, Any]) -> str:
    settings = [f"{k}={format_value(v)}" for k, v in flatten(table).items() if k not in NOT_PART_OF_IT]
    return f"{name} ({', '.join(settings)})" if settings else name


def data_versions(groups: Sequence[Group]) -> list[str]:
    """For each group, the digest of its data if the data of this name differ between groups, else ""."""
    digests = [next((d["data"] for d in map(fingerprints, group.runs) if "data" in d), "") for group in groups]
    names = [format_value(group.spec.get("data", {}).get("dataset")) for group in groups]
    known: dict[str, set[str]] = {}
    for name, digest in zip(names, digests, strict=True):
        known.setdefault(name, set()).add(digest)
    several = {name for name, found in known.items() if len(found - {""}) > 1}
    return [digest[:SHORT] if name in several else "" for name, digest in zip(names, digests, strict=True)]


def short_labels(
    labels: Sequence[str], specs: Sequence[Mapping[str, Any]], names: Sequence[str], problems: Sequence[Problem]
) -> list[str]:
    """The labels without dataset, partition and attack, where that is enough among those that share them."""
    short = list(labels)
    for problem in set(problems):
        members = [i for i, other in enumerate(problems) if other == problem]
        parts = make_labels([specs[i] for i in members], [names[i] for i in members])
        named = [label.without_attack() for label in parts]
        for i, name in zip(members, named, strict=True):
            short[i] = name if named.count(name) == 1 else labels[i]
    return short


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
    """Without the settings of an attack in brackets, where the names alone differ."""
    distinct = set(values)
    names = {value: value.partition(" (")[0] for value in distinct}
    return names if len(set(names.values())) == len(distinct) else {value: value for value in distinct}
