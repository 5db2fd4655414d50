"""A figure: one experiment and its curves, read from `figures/NAME.toml`. Needs no torch.

topic, title, paper       the place in the paper, a title, and what the paper reports
based_on, include         take over the experiment of another figure, and these of its curves
datasets                  the first one that is available is used
[experiment]              what all curves share: tables as in any experiment file
set                       `key=value` changes to an experiment taken over by `based_on`
[assumed]                 settings that the paper does not state, and their source
[[curves]]                id, label, `set` = key=value changes, `tune` = a key and its candidate values, or
                          `of` = the id of another curve: its runs, with the model that the algorithm's paper evaluates
[quick]                   `set`, and by dataset, the reduced settings for a smoke test
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from dragfl.config.convert import convert
from dragfl.config.overrides import override
from dragfl.errors import SpecError, nearest

FOLDER = files("dragfl.reproduction").joinpath("figures")


@dataclass(frozen=True)
class Tune:
    """A setting whose value is selected by runs on the tuning seeds, by their accuracy on `on`."""

    key: str
    values: list[Any]
    on: Literal["validation", "test"] = "validation"


@dataclass(frozen=True)
class Curve:
    """One line of a figure. Curves of the same facet share a subplot.

    A derived curve has no runs of its own: it shows `own_accuracy` in place of `accuracy` of the curve `of`.
    """

    id: str
    label: str
    set: list[str] = field(default_factory=list)
    tune: Tune | None = None
    of: str | None = None
    facet: str = ""

    @property
    def full_label(self) -> str:
        return f"{self.label}, {self.facet}" if self.facet else self.label

    @property
    def label_in_text(self) -> str:
        """`FedAvg (no attack)` for the label `FedAvg, no attack`: in a list, commas separate curves."""
        name, _, variant = self.full_label.partition(", ")
        return f"{name} ({variant})" if variant else name


@dataclass(frozen=True)
class Quick:
    """Reduced settings. A tuned setting takes the middle one of its values, without tuning runs."""

    set: list[str] = field(default_factory=list)
    datasets: dict[str, list[str]] = field(default_factory=dict)  # dataset -> more changes; may be a substitute


@dataclass(frozen=True)
class Figure:
    """A figure with everything it takes over from another one."""

    name: str
    topic: str
    title: str
    paper: str
    datasets: list[str] = field(default_factory=list)
    based_on: str | None = None
    include: list[str] = field(default_factory=list)
    set: list[str] = field(default_factory=list)
    seeds: int = 3
    experiment: dict[str, Any] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    quick: Quick = field(default_factory=Quick)

    @property
    def rounds(self) -> int:
        return int(self.experiment["rounds"])

    def __getitem__(self, curve: str) -> Curve:
        found = next((c for c in self.curves if c.id == curve), None)
        if found is None:
            raise SpecError(f"figure {self.name}: no curve '{curve}'{nearest(curve, [c.id for c in self.curves])}")
        return found


@cache
def figure_names() -> list[str]:
    """All figures: those of the paper first, then the others by name."""
    found = [file.name.removesuffix(".toml") for file in FOLDER.iterdir() if file.name.endswith(".toml")]
    return sorted(found, key=lambda name: (not name.startswith("fig"), name))


@cache
def load_figure(name: str) -> Figure:
    if name not in figure_names():
        raise SpecError(f"reproduce: unknown figure '{name}'{nearest(name, figure_names())}")
    return parse_figure(name, tomllib.loads(FOLDER.joinpath(f"{name}.toml").read_text()))


def parse_figure(name: str, table: Mapping[str, Any]) -> Figure:
    """Convert and check the tables of a figure's file."""
    figure = convert(f"figure {name}", {"name": name, **table}, Figure)
    if figure.based_on is not None:
        base = load_figure(figure.based_on)
        figure = replace(
            figure,
            datasets=figure.datasets or base.datasets,
            experiment=override({**base.experiment, **figure.experiment}, figure.set),
            assumed={**base.assumed, **figure.assumed},
            curves=[base[curve] for curve in figure.include] + figure.curves,
            quick=figure.quick if "quick" in table else base.quick,
            seeds=figure.seeds if "seeds" in table else base.seeds,
        )
    for key in ("datasets", "curves", "experiment"):
        if not getattr(figure, key):
            raise SpecError(f"figure {name}: no {key}; add it, or take it over with `based_on`")
    ids = [curve.id for curve in figure.curves]
    duplicate = next((i for i in ids if ids.count(i) > 1), None)
    if duplicate is not None:
        raise SpecError(f"figure {name}: two curves have the id '{duplicate}'; each needs its own id")
    for curve in figure.curves:
        _check_derived(figure, curve)
    return figure


def _check_derived(figure: Figure, curve: Curve) -> None:
    """Check that a derived curve has no settings of its own and that the curve it is derived from has runs."""
    if curve.of is None:
        return
    where = f"figure {figure.name}, curve '{curve.id}'"
    if curve.set or curve.tune is not None:
        raise SpecError(f"{where}: `of` with `set` or `tune`; remove them, the runs are those of '{curve.of}'")
    with_runs = [other.id for other in figure.curves if other.of is None]
    if curve.of not in with_runs:
        raise SpecError(
            f"{where}: of = '{curve.of}' is not a curve with runs of this figure{nearest(curve.of, with_runs)}"
        )
