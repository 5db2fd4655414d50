"""What robust rules are made of, and the calls that turn such a part into an aggregate.

A part holds hyper-parameters and has one of three methods, written like its paper:

    matrix(gram, f, rng) -> (n', n)       a pre-aggregator: the rows X become P X
    weights(gram, f, rng) -> Weighting    the step is weights @ X
    columns(chunk (n, b), f) -> (b,)      the step, coordinate by coordinate

and may have `matrix` beside `columns` (Bulyan selects rows first). `f` is the number of updates assumed to be
malicious, `gram` the dots and distances of the rows (`gram.py`), `rng` a numpy Generator addressed by round.

`least(f)` is how many rows the part needs. Where fewer arrived than were sampled, f is lowered by as many, since
attackers may be among the missing; if that is not enough the round is skipped (`Infeasible`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dragfl.errors import Infeasible, SpecError
from dragfl.types import FederationInfo, Need, Partial, Plan, RoundContext, RoundInputs, State, Updates

if TYPE_CHECKING:
    from torch import Tensor

HINT = "lower f or raise clients.per_round"


@dataclass(frozen=True)
class Weighting:
    """What a rule makes of the rows: weights @ rows is the step."""

    weights: Tensor  # (n,) float64
    suspicion: Tensor  # (n,) float64, higher is more suspicious
    noise: float = 0.0  # standard deviation of the normal noise added to every number of the step


class Part(Protocol):
    """What every part has beside its method."""

    @property
    def name(self) -> str: ...

    def least(self, f: int) -> int:
        """The least number of rows it can work on."""
        ...


def part_name(part: Any) -> str:
    """What to call a part that may be somebody's own."""
    return str(getattr(part, "name", type(part).__name__))


def majority(self: Any, f: int) -> int:
    """`least = majority`: more than half of the rows are honest."""
    return 2 * f + 1


def any_number(self: Any, f: int) -> int:
    """`least = any_number`: it works on a single row."""
    return 1


def check_count(owner: str, name: str, value: object, low: int = 0) -> None:
    """Raise where a setting is no whole number of at least `low`; None passes, for a default found later."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise SpecError(f"{owner}: {name}={value!r}; give a whole number of at least {low}")


def assumed(part: Any, f: int | None, lost: int = 0) -> int:
    """The f a part works with: its own, else the one given, less the updates that never arrived."""
    own = getattr(part, "f", None)
    return max(0, (own if own is not None else f or 0) - lost)


def shortage_of(parts: Sequence[Any], n: int, f: int | None, lost: int = 0, hint: str = HINT) -> str | None:
    """Why n rows are too few for these parts one after the other, with the numbers, or None if they are enough."""
    before = ""
    for part in parts:
        have = assumed(part, f, lost)
        least = part.least(have) if hasattr(part, "least") else 1
        if n < least:
            missing = f" ({lost} more could not be used)" if lost > 0 else ""
            return f"{part_name(part)}{before}: f={have} needs at least {least} updates, got {n}{missing}; {hint}"
        if hasattr(part, "rows"):
            n = part.rows(n)
            before = f" after {part_name(part)}"
    return None


@dataclass(frozen=True)
class RobustPlan:
    context: RoundContext
    per_round: int


def everyone(self: Any, state: State) -> frozenset[Need]:
    """`needs = everyone`: the whole cohort in one block."""
    return frozenset({"all"})


def robust_begin(self: Any, state: State, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> Plan:
    return RobustPlan(context, info.per_round)


def robust_fold(self: Any, plan: Plan, block: Updates) -> Partial:
    """The whole cohort at once: the step, and every client's norm and suspicion."""
    from dragfl.aggregates.robust.pipeline import apply

    lost = max(0, plan.per_round - len(block))
    if why := shortage_of((self,), len(block), None, lost):
        raise Infeasible(why)
    rng = plan.context.rng("robust", part_name(self))
    outcome = apply((self,), block.delta, block.norm, None, lost, rng, score=True)
    return Partial.of(block, {"step": outcome.step}, {"norm": block.norm, "suspicion": outcome.suspicion})


def robust_finish(self: Any, state: State, plan: Plan, partial: Partial) -> tuple[Tensor, State, Mapping[str, float]]:
    return partial.sums["step"].float(), state, {}


def robust_shortage(self: Any, n: int) -> str | None:
    """Why this rule cannot work on n updates, or None: asked before a run starts."""
    return shortage_of((self,), n, None)
