"""The page's title and its opening sentences, made of what the runs say and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dragfl.report.groups import Group
from dragfl.report.labels import flatten, text
from dragfl.report.table import Row


def title(groups: Sequence[Group]) -> str:
    """`DRAG and FedAvg on digits`."""
    names = list(dict.fromkeys(group.algorithm for group in groups))
    what = listed(names) if len(names) <= 4 else f"{len(names)} algorithms"
    dataset = shared(groups, "data.dataset")
    return f"{what} on {text(dataset)}" if dataset is not None else what


def summary(groups: Sequence[Group], rows: Sequence[Row]) -> str:
    """What was run, on what, against whom, and what came out best."""
    parts = [_what(groups) + _where(groups) + ".", _best(groups, rows)]
    stopped = sum(len(row.unfinished) for row in rows)
    if stopped:
        parts.append(f"{_count(stopped, 'run')} {'is' if stopped == 1 else 'are'} unfinished.")
    exploded = sum(len(row.diverged) for row in rows)
    if exploded:
        parts.append(f"{_count(exploded, 'run')} diverged.")
    return " ".join(part for part in parts if part)


def shared(groups: Sequence[Group], key: str) -> Any:
    """The value of a dotted setting that all groups have, or None."""
    values = [flatten(group.spec).get(key) for group in groups]
    return values[0] if all(value == values[0] for value in values) else None


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _what(groups: Sequence[Group]) -> str:
    """`12 runs of DRAG and FedAvg, 3 seeds each,`."""
    runs = sum(len(group.runs) for group in groups)
    names = listed(list(dict.fromkeys(group.algorithm for group in groups)))
    seeds = {len(group.runs) for group in groups}
    each = f", {seeds.pop()} seeds each," if len(seeds) == 1 and 1 not in seeds and len(groups) > 1 else ""
    alike = " that differ by seed" if len(groups) == 1 and runs > 1 else ""
    return f"{_count(runs, 'run')} of {names}{alike}{each}"


def _where(groups: Sequence[Group]) -> str:
    words = ""
    dataset, kind = shared(groups, "data.dataset"), shared(groups, "data.partition.kind")
    if dataset is not None:
        words += f" on {text(dataset)}" + (f" (partition {text(kind)})" if kind is not None else "")
    total, per_round = shared(groups, "clients.total"), shared(groups, "clients.per_round")
    if total is not None:
        words += f" with {_count(total, 'client')}"
        words += f", {per_round} of them in a round" if per_round is not None and per_round != total else ""
    return words + _under_attack(groups)


def _under_attack(groups: Sequence[Group]) -> str:
    attack, attackers = shared(groups, "attack.name"), shared(groups, "attack.attackers")
    if attack is not None and attackers:
        return f"; {_count(attackers, 'client')} {'attacks' if attackers == 1 else 'attack'} ({text(attack)})"
    attacked = [group for group in groups if group.attack]
    if not attacked:
        return ""
    if len(attacked) == len(groups):
        return f"; all under attack ({', '.join(dict.fromkeys(group.attack or '' for group in groups))})"
    runs, names = sum(len(group.runs) for group in attacked), dict.fromkeys(group.attack or "" for group in attacked)
    return f"; {_count(runs, 'run')} under attack ({', '.join(names)})"


def _best(groups: Sequence[Group], rows: Sequence[Row]) -> str:
    """The highest mean best accuracy under each attack; no winner is named among runs on different data."""
    known = [(g, row.best_accuracy) for g, row in zip(groups, rows, strict=True) if row.best_accuracy]
    if not known:
        return "No round has been evaluated yet."
    if len(rows) == 1:
        return f"Best accuracy: {known[0][1]}."
    if shared(groups, "data.dataset") is None:
        return ""
    told = []
    for against in dict.fromkeys(group.against for group, _ in known):
        group, best = max((pair for pair in known if pair[0].against == against), key=lambda pair: pair[1].mean)
        where = f" ({against})" if against else ""
        told.append(f"{best} by {group.short}{where}")
    return f"Highest best accuracy: {listed(told)}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
