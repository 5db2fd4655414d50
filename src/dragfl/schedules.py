"""A number that may change with the round: constant, linear, cosine or inverse square root.

DRAG's bound keeps a floor proportional to c for any fixed c, so convergence needs a c that shrinks. In a spec:

    c = 0.25
    c = { kind = "linear", start = 0.25, end = 0.0, rounds = 600 }
    c = { kind = "inverse_sqrt", start = 0.25, period = 10 }
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args, get_origin, get_type_hints

from dragfl.errors import SettingError, nearest


@dataclass(frozen=True)
class Schedule:
    """start at round 0; linear and cosine reach `end` after `rounds`; inverse_sqrt is start/sqrt(1 + t/period)."""

    start: float
    kind: Literal["constant", "linear", "cosine", "inverse_sqrt"] = "constant"
    end: float = 0.0
    rounds: int = 0
    period: float = 1.0

    def __post_init__(self) -> None:
        check_choices("schedule", self)
        if self.kind in ("linear", "cosine") and self.rounds < 1:
            problem = f"{self.rounds} for kind '{self.kind}'; give the number of rounds until `end` is reached"
            raise SettingError("schedule", "rounds", problem)
        if not self.period > 0:
            raise SettingError("schedule", "period", f"{self.period}; give a number above 0")

    def __call__(self, t: int) -> float:
        if self.kind == "constant":
            return self.start
        if self.kind == "inverse_sqrt":
            return self.start / math.sqrt(1.0 + t / self.period)
        done = min(1.0, t / self.rounds)
        fade = 1.0 - done if self.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.end + (self.start - self.end) * fade

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value it takes or approaches."""
        last = {"constant": self.start, "inverse_sqrt": 0.0}.get(self.kind, self.end)
        return min(self.start, last), max(self.start, last)


def at(value: float | Schedule, t: int) -> float:
    """The value of a number or a schedule at round t."""
    return value(t) if isinstance(value, Schedule) else float(value)


def check_range(
    owner: str,
    name: str,
    value: float | Schedule,
    low: float,
    high: float,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise if the number, or any value of the schedule, is outside [low, high]; an open end is outside too."""
    if not isinstance(value, Schedule | Real):
        raise SettingError(owner, name, f"{value!r} is a {type(value).__name__}; give a number or a schedule")
    least, most = value.bounds if isinstance(value, Schedule) else (float(value), float(value))
    # inverse_sqrt approaches an open lower end without reaching it.
    lowest = most if isinstance(value, Schedule) and value.kind == "inverse_sqrt" else least
    below = least < low or (open_low and lowest <= low)
    above = most > high or (open_high and most == high)
    if below or above or not (math.isfinite(least) and math.isfinite(most)):
        interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise SettingError(owner, name, f"{value} is outside {interval}; choose a value inside it")


def check_choice(owner: str, name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise if the word is not one of the known ones."""
    if value not in known:
        raise SettingError(owner, name, f"{value!r} is unknown{nearest(str(value), known)}")


def check_choices(owner: str, part: object) -> None:
    """Raise if a setting of a dataclass is not one of the words of its Literal type."""
    for name, hint in get_type_hints(type(part)).items():
        if get_origin(hint) is Literal:
            check_choice(owner, name, getattr(part, name), get_args(hint))
