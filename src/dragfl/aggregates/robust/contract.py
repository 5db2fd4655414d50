"""The methods that a part of a robust rule may have, and the checks on the number of updates.

A part is a frozen dataclass of hyper-parameters with one of three methods, written like its paper:

    matrix(gram, f, rng) -> (n', n)       a pre-aggregator: the rows X become P X
    weights(gram, f, rng) -> Weighting    the step is weights @ X
    columns(chunk (n, b), f) -> (b,)      the step, coordinate by coordinate

Bulyan has both `matrix` and `columns`: it selects rows first. `f` is the number of updates assumed to be malicious,
`gram` the dots and distances of the rows (`gram.py`), `rng` a numpy Generator addressed by round.

`least(f)` is the smallest number of rows the part can work on. If fewer updates arrived than clients were sampled, f
is lowered by the difference, because the missing ones may be the attackers. If that is not enough, the round is
skipped (`Infeasible`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dragfl.aggregates.robust.gram import Gram
from dragfl.errors import SettingError
from dragfl.lazy import Tensor
from dragfl.schedules import check_choices

HINT = "lower f or raise clients.per_round"


@dataclass(frozen=True)
class Weighting:
    """The result of a weight rule: the step is weights @ rows."""

    weights: Tensor  # (n,) float64
    suspicion: Tensor  # (n,) float64, higher is more suspicious
    noise: float = 0.0  # standard deviation of the normal noise added to every coordinate of the step


@runtime_checkable
class WeightRule(Protocol):
    """A rule whose step is a weighted sum of the updates."""

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting: ...


@runtime_checkable
class ColumnRule(Protocol):
    """A rule that treats every coordinate separately."""

    def columns(self, chunk: Tensor, f: int) -> Tensor: ...


@runtime_checkable
class TransformsRows(Protocol):
    """A part that replaces the rows X by P X: a pre-aggregator, or the selection step of Bulyan."""

    def matrix(self, gram: Gram, f: int, rng: np.random.Generator) -> Tensor: ...


@runtime_checkable
class MakesBuckets(Protocol):
    """A pre-aggregator whose rows are means of several clients instead of one row for each client."""

    def rows(self, n: int) -> int:
        """The number of rows it makes of n."""
        ...


@runtime_checkable
class ScoresRows(Protocol):
    """A column rule with its own suspicion scores; the others use the distance from the step."""

    def scores(self, gram: Gram, f: int) -> Tensor: ...


@runtime_checkable
class LimitsRows(Protocol):
    """A part that needs a minimum number of rows."""

    def least(self, f: int) -> int: ...


@runtime_checkable
class ComparesModels(Protocol):
    """A rule that can compare the local models w + g_i instead of the updates."""

    @property
    def uses_model(self) -> bool:
        """Whether it needs the model w that was sent out: then `gram.model`."""
        ...


@runtime_checkable
class HasF(Protocol):
    """A part with its own assumed number of malicious updates; None: the default of the chain or the run."""

    @property
    def f(self) -> int | None: ...


@runtime_checkable
class Named(Protocol):
    @property
    def name(self) -> str: ...


def part_name(part: object) -> str:
    """The name of a part in messages and random addresses; for a user's own part without a name, its class."""
    return part.name if isinstance(part, Named) else type(part).__name__


def majority(self: Any, f: int) -> int:
    """`least = majority`: more than half of the rows must be honest."""
    return 2 * f + 1


def any_number(self: Any, f: int) -> int:
    """`least = any_number`: one row is enough."""
    return 1


def check_settings(self: Any) -> None:
    """Check the settings of a rule: words of Literal types; whole numbers, f >= 0 and all others >= 1."""
    check_choices(self.name, self)
    for field in fields(self):
        if field.type in ("int", "int | None"):
            check_count(self.name, field.name, getattr(self, field.name), 0 if field.name == "f" else 1)


def check_count(owner: str, name: str, value: object, low: int = 0) -> None:
    """Raise if a setting is not an integer of at least `low`. None passes: the default is found later."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise SettingError(owner, name, f"{value!r}; give a whole number of at least {low}")


def assumed_f(part: object, f: int | None, missing: int = 0) -> int:
    """The f a part works with: its own, else the given one, minus the updates that are missing."""
    own = part.f if isinstance(part, HasF) else None
    return max(0, (own if own is not None else f or 0) - missing)


def find_shortage(parts: Sequence[object], n: int, f: int | None, missing: int = 0, hint: str = HINT) -> str | None:
    """Why n rows are too few for these parts in sequence, with the numbers; None if they are enough."""
    after = ""
    for part in parts:
        have = assumed_f(part, f, missing)
        least = part.least(have) if isinstance(part, LimitsRows) else 1
        if n < least:
            more = f" ({missing} more could not be used)" if missing > 0 else ""
            return f"{part_name(part)}{after}: f={have} needs at least {least} updates, got {n}{more}; {hint}"
        if isinstance(part, MakesBuckets):
            n, after = part.rows(n), f" after {part_name(part)}"
    return None
