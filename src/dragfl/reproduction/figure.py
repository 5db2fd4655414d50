"""A panel: the experiment behind one figure, and its curves. Read from `panels/NAME.toml`; needs no torch.

figure, title, paper      where it is in the paper, and what the paper says it shows
like, also                take the experiment of another panel, and these curves of it
datasets                  the first that is at hand is used
[experiment]              what all curves share: tables as in any experiment file
set                       `key=value` changes to an experiment taken over by `like`
[assumed]                 settings on which the paper is silent, and where they are from
[[curve]]                 id, label, `set` = key=value words, or `tune` = a key and the values to choose from
[quick]                   `set`, and by dataset, what makes it small enough for a look
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from dragfl.config.overrides import override
from dragfl.config.registry import convert
from dragfl.errors import SpecError, nearest

TUNING_SEEDS = (100,)  # never among the judged, which count from 0


@dataclass(frozen=True)
class Tune:
    """A setting that is chosen by runs on the tuning seeds."""

    key: str
    values: list[Any]


@dataclass(frozen=True)
class Curve:
    """One line of a figure."""

    id: str
    label: str
    set: list[str] = field(default_factory=list)
    tune: Tune | None = None
    facet: str = ""  # curves of a facet are drawn together, beside the others

    @property
    def name(self) -> str:
        """What it is called where facets are not apart."""
        return f"{self.label}, {self.facet}" if self.facet else self.label


@dataclass(frozen=True)
class Quick:
    """The panel in small; what is tuned otherwise takes its middle value as it is."""

    set: list[str] = field(default_factory=list)
    datasets: dict[str, list[str]] = field(default_factory=dict)  # dataset -> further changes; may stand in


@dataclass(frozen=True)
class Panel:
    """A panel as its file has it, with what it takes over from another."""

    name: str
    figure: str
    title: str
    paper: str
    datasets: list[str] = field(default_factory=list)
    like: str | None = None
    also: list[str] = field(default_factory=list)
    set: list[str] = field(default_factory=list)
    seeds: int = 3
    experiment: dict[str, Any] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    curve: list[Curve] = field(default_factory=list)
    quick: Quick = field(default_factory=Quick)

    @property
    def rounds(self) -> int:
        """The panel's stated maximum: a target not reached by then counts as later than that."""
        return int(self.experiment["rounds"])

    @property
    def target(self) -> float | None:
        value = self.experiment.get("target_accuracy")
        return None if value is None else float(value)

    def __getitem__(self, curve: str) -> Curve:
        found = next((c for c in self.curve if c.id == curve), None)
        if found is None:
            raise SpecError(f"panel {self.name}: no curve '{curve}'{nearest(curve, [c.id for c in self.curve])}")
        return found


def names() -> list[str]:
    """Every panel: the figures of the paper first, then the others by name."""
    found = sorted(f.name.removesuffix(".toml") for f in _folder().iterdir() if f.name.endswith(".toml"))
    return sorted(found, key=lambda name: (not name.startswith("fig"), name))


@cache
def load(name: str) -> Panel:
    """A panel by name, checked."""
    if name not in names():
        raise SpecError(f"paper: unknown panel '{name}'{nearest(name, names())}")
    return made(name, tomllib.loads(_folder().joinpath(f"{name}.toml").read_text()))


def made(name: str, table: Mapping[str, Any]) -> Panel:
    """The panel that the tables of a file describe."""
    panel = convert(f"panel {name}", {"name": name, **table}, Panel)
    if panel.like is not None:
        panel = _taken_over(panel, table, load(panel.like))
    for what, given in (("datasets", panel.datasets), ("curve", panel.curve), ("experiment", panel.experiment)):
        if not given:
            raise SpecError(f"panel {name}: no {what}; give it, or take it over with `like`")
    ids = [curve.id for curve in panel.curve]
    twice = next((i for i in ids if ids.count(i) > 1), None)
    if twice is not None:
        raise SpecError(f"panel {name}: two curves are called '{twice}'; give each an id of its own")
    return panel


def _taken_over(panel: Panel, table: Mapping[str, Any], other: Panel) -> Panel:
    """What is not given is the other panel's; `also` names the curves that are, too."""
    return replace(
        panel,
        datasets=panel.datasets or other.datasets,
        experiment=override({**other.experiment, **panel.experiment}, panel.set),
        assumed={**other.assumed, **panel.assumed},
        curve=[other[c] for c in panel.also] + panel.curve,
        quick=panel.quick if "quick" in table else other.quick,
        seeds=panel.seeds if "seeds" in table else other.seeds,
    )


def _folder() -> Any:
    return files("dragfl.reproduction").joinpath("figures")
