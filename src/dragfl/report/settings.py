"""What the runs were set to: what all share, what tells them apart, and what they ran on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dragfl.report.groups import Group
from dragfl.report.labels import NOT_SET, flatten, text

_LISTED_ELSEWHERE = ("name", "seed")  # each run's own; the list of runs has them


@dataclass(frozen=True)
class Settings:
    """`common` holds for every group; `differing` has a value for each group, in their order."""

    common: list[tuple[str, str]]
    differing: list[tuple[str, list[str]]]


def settings(groups: Sequence[Group]) -> Settings:
    flats = [flatten(group.spec) for group in groups]
    keys = list(dict.fromkeys(key for flat in flats for key in flat if key not in _LISTED_ELSEWHERE))
    tables = list(dict.fromkeys(key.split(".")[0] for key in keys))
    keys.sort(key=lambda key: tables.index(key.split(".")[0]))  # a table's settings stay together
    found = {key: [text(flat.get(key)) for flat in flats] for key in keys}
    common = [(key, values[0]) for key, values in found.items() if len(set(values)) == 1]
    differing = [(key, values) for key, values in found.items() if len(set(values)) > 1]
    return Settings(common, differing)


def machine(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Versions and machine from every run.json; where runs differ, all values are listed."""
    flats = [flatten(run.info) for group in groups for run in group.runs]
    keys = list(dict.fromkeys(key for flat in flats for key in flat if key != "seed"))
    pairs = [(key, list(dict.fromkeys(text(flat.get(key)) for flat in flats))) for key in keys]
    return [(key, " | ".join(values)) for key, values in pairs if values != [NOT_SET]]
