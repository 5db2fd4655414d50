"""A paired comparison of two algorithms: runs with the same seed and the same other settings form a pair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dragfl.errors import SpecError, nearest
from dragfl.report.find import RunLike, find_runs
from dragfl.report.groups import Group, group_runs, seed_of
from dragfl.report.labels import flatten, format_value
from dragfl.report.numbers import format_seeds
from dragfl.report.outcomes import Outcome, is_fraction, low_is_best, outcome
from dragfl.report.problems import data_versions, headings, problem_of, short_labels
from dragfl.report.statistics import ENUMERATED, sign_flip_p, smallest_p, t_interval


@dataclass(frozen=True)
class Pair:
    """The results of two runs that differ only in their algorithm, and in settings tuned for it."""

    seed: int
    first: Outcome
    second: Outcome

    @property
    def difference(self) -> float | None:
        """First minus second; None where a value is only known to be beyond a limit."""
        both = self.first.value, self.second.value
        known = all(map(math.isfinite, both)) and not self.first.censored and not self.second.censored
        return both[0] - both[1] if known else None

    @property
    def sign(self) -> int | None:
        """1 if the first value is larger, -1 if smaller, 0 if equal; None where censoring leaves it open."""
        a, b = self.first, self.second
        if all(side.censored or side.value == math.inf for side in (a, b)):
            return 0  # neither has reached the target
        if a.censored:
            return 1 if b.value <= a.value else None
        if b.censored:
            return -1 if a.value <= b.value else None
        return (a.value > b.value) - (a.value < b.value)


@dataclass(frozen=True)
class Comparison:
    """Two algorithms on the same dataset, partition and attack."""

    first: str
    second: str
    metric: str
    heading: str  # dataset, partition and attack, where the runs have several
    pairs: tuple[Pair, ...]
    also_differ: Mapping[str, tuple[Any, Any]]  # settings outside of the algorithm that differ, such as a tuned rate

    @property
    def differences(self) -> list[float] | None:
        """First minus second of every pair; None if one is unknown."""
        found = [pair.difference for pair in self.pairs]
        return None if None in found else [value for value in found if value is not None]

    @property
    def mean_difference(self) -> float | None:
        return None if self.differences is None else fmean(self.differences)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % t-interval of the mean difference."""
        return None if self.differences is None else t_interval(self.differences)

    @property
    def _signs(self) -> list[int]:
        """Of the decided pairs, positive where the first is better."""
        better = -1 if low_is_best(self.metric) else 1
        return [better * pair.sign for pair in self.pairs if pair.sign is not None]

    @property
    def wins(self) -> int:
        return self._signs.count(1)

    @property
    def losses(self) -> int:
        return self._signs.count(-1)

    @property
    def ties(self) -> int:
        return self._signs.count(0)

    @property
    def undecided(self) -> int:
        """Pairs that censoring leaves open."""
        return len(self.pairs) - len(self._signs)

    @property
    def p(self) -> float | None:
        """Two-sided p-value of the sign-flip test; of wins and losses alone where a difference is unknown."""
        return sign_flip_p(self._signs if self.differences is None else self.differences)

    @property
    def smallest_p(self) -> float:
        """The smallest p-value that so many pairs allow."""
        return smallest_p(len(self._signs))

    def lines(self) -> list[str]:
        """Two or three lines of text."""
        where = f", {self.heading}" if self.heading else ""
        seeds = format_seeds([pair.seed for pair in self.pairs])
        text = [f"{self.first} - {self.second}{where}: {self.metric}, {len(self.pairs)} pairs, seeds {seeds}"]
        counts = f"wins {self.wins}, losses {self.losses}, ties {self.ties}"
        counts += f", undecided {self.undecided}" if self.undecided else ""
        text.append(f"{self._difference_text()}; {counts}")
        if self.p is not None:
            how = "sign-flip test" if self.differences is not None else "sign test of wins and losses"
            exact = "exact" if len(self._signs) <= ENUMERATED else "sampled"
            limit = f"the smallest p that {len(self._signs)} pairs allow is {self.smallest_p:.3g}"
            text.append(f"{exact} {how}: p = {self.p:.3g}; {limit}")
        if self.also_differ:
            settings = (f"{k} = {format_value(a)} and {format_value(b)}" for k, (a, b) in self.also_differ.items())
            text.append(f"they also differ in {', '.join(settings)}")
        return text

    def _difference_text(self) -> str:
        if self.mean_difference is None:
            return "no mean difference: a run did not reach the target or diverged"
        percent = is_fraction(self.metric)

        def number(value: float) -> str:
            return f"{100 * value:+.2f}" if percent else f"{value:+.4g}"

        text = f"mean difference {number(self.mean_difference)}{' percentage points' if percent else ''}"
        return text + (f", 95 % interval [{', '.join(map(number, self.interval))}]" if self.interval else "")

    def values(self) -> dict[str, Any]:
        """Plain values, for a file."""
        low, high = self.interval or (None, None)
        return {
            "first": self.first, "second": self.second, "metric": self.metric, "heading": self.heading,
            "seeds": [pair.seed for pair in self.pairs],
            "values_first": [pair.first.value for pair in self.pairs],
            "values_second": [pair.second.value for pair in self.pairs],
            "mean_difference": self.mean_difference, "ci_low": low, "ci_high": high,
            "wins": self.wins, "losses": self.losses, "ties": self.ties, "undecided": self.undecided,
            "p": self.p, "smallest_p": self.smallest_p, "also_differ": self.also_differ,
        }  # fmt: skip


def compare(
    runs: RunLike | Sequence[RunLike], first: str, second: str, metric: str = "final_accuracy"
) -> list[Comparison]:
    """Compare two algorithms by pairs of runs, one comparison for each dataset, partition and attack.

    `first` and `second` are labels of the report or names of algorithms. `metric` is final_accuracy, best_accuracy,
    rounds_to_target, or a metric of metrics.jsonl, whose last value is taken. A diverged run counts as chance level.
    """
    return compare_groups(group_runs(find_runs(runs)), first, second, metric)


def compare_groups(
    groups: Sequence[Group], first: str, second: str, metric: str = "final_accuracy"
) -> list[Comparison]:
    problems = dict(zip(groups, map(problem_of, (g.spec for g in groups), data_versions(groups)), strict=True))
    given = [g.name for g in groups]
    short = short_labels([g.label for g in groups], [g.spec for g in groups], given, list(problems.values()))
    names = {
        g: {g.label, g.label_within_attack, g.algorithm, s, *filter(None, [g.name])}
        for g, s in zip(groups, short, strict=True)
    }
    sides = [_matching(names, name) for name in (first, second)]
    if any(group in sides[1] for group in sides[0]):
        raise SpecError(f"compare: '{first}' and '{second}' are the same runs; give two different labels")
    titles = headings(problems.values())
    found = []
    for problem in sorted(titles):
        a, b = ([group for group in side if problems[group] == problem] for side in sides)
        if a and b:
            found.append(_compare(_match(a, b, first, second), first, second, metric, titles[problem]))
    if not found:
        raise SpecError(
            f"compare: '{first}' and '{second}' have no dataset, partition and attack in common; run both on the same"
        )
    return found


def _matching(names: Mapping[Group, set[str]], name: str) -> list[Group]:
    """The group with this label, else all groups of this algorithm, or with this label in their part of the table."""
    found = [g for g in names if g.label == name] or [g for g, known in names.items() if name in known]
    if not found:
        raise SpecError(f"compare: no run '{name}'{nearest(name, set().union(*names.values()))}")
    return found


def _match(a: Sequence[Group], b: Sequence[Group], first: str, second: str) -> list[tuple[Group, Group]]:
    """The groups that belong together: the only ones, else those with equal settings outside of the algorithm."""
    if len(a) == len(b) == 1:
        return [(a[0], b[0])]
    mine, theirs = ({repr(sorted(_other_settings(g).items(), key=str)): g for g in side} for side in (a, b))
    if mine.keys() == theirs.keys() and len(mine) == len(a) and len(theirs) == len(b):
        return [(group, theirs[key]) for key, group in mine.items()]
    name, side = (first, a) if len(a) > len(b) else (second, b)
    labels = ", ".join(f"'{g.label}'" for g in side)
    raise SpecError(f"compare: '{name}' matches {len(side)} rows: {labels}; give one label for each side")


def _other_settings(group: Group) -> dict[str, Any]:
    """The settings that decide the result, without the algorithm, the seed and how the work is done."""
    flat = flatten(group.runs[0].result_settings)
    return {
        k: v for k, v in flat.items() if k != "seed" and k.split(".")[0] not in ("algorithm", "algorithms", "engine")
    }


def _compare(matched: Sequence[tuple[Group, Group]], first: str, second: str, metric: str, heading: str) -> Comparison:
    pairs: list[Pair] = []
    differ: dict[str, tuple[Any, Any]] = {}
    for a, b in matched:
        mine, theirs = ({seed_of(run): run for run in group.runs if run.finished} for group in (a, b))
        pairs += [Pair(s, outcome(mine[s], metric), outcome(theirs[s], metric)) for s in mine if s in theirs]
        x, y = _other_settings(a), _other_settings(b)
        differ |= {k: (x.get(k), y.get(k)) for k in dict.fromkeys([*x, *y]) if x.get(k) != y.get(k)}
    if not pairs:
        raise SpecError(f"compare: '{first}' and '{second}' have no finished runs with the same seed; run both on one")
    if metric == "rounds_to_target" and {"target_accuracy", "evaluation.target_on"} & differ.keys():
        raise SpecError(f"compare: '{first}' and '{second}' have different targets; compare another metric")
    return Comparison(first, second, metric, heading, tuple(pairs), differ)
