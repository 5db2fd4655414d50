"""Run what panels are missing, the cheapest panel first: a call that is cut short has finished what it could."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dragfl.errors import Interrupted, SpecError
from dragfl.reproduction.cost import Rates
from dragfl.reproduction.figure import Panel
from dragfl.reproduction.plan import Laid, Scale, finished, lay_out, unique
from dragfl.runs.sweep import Callbacks, PlannedRun, run_planned

Asked = Sequence[tuple[Panel, Scale]]


def lay_all(asked: Asked, folder: Path) -> list[Laid]:
    return [lay_out(panel, scale, folder) for panel, scale in asked]


def missing(laid: Sequence[Laid]) -> list[PlannedRun]:
    """The runs that have not ended: the cheapest panel first, in it what tunes, then seed by seed."""
    rates = Rates([p for one in laid for p in one.planned])
    order = []
    for one in sorted(laid, key=lambda one: rates.left(one.planned)):
        by_seed = sorted(one.runs, key=lambda run: run.seed)
        order += [run.planned for run in [*one.tuning, *by_seed]]
    return [p for p in unique(order) if finished(p.folder) is None]


def waiting(laid: Sequence[Laid]) -> list[PlannedRun]:
    """Stand-ins for the runs of curves that are still being tuned, to count them in an estimate."""
    return [
        next(run.planned for run in one.tuning if run.curve == curve)
        for one in laid
        for curve in one.open
        for _ in one.scale.seeds
    ]


def play(
    asked: Asked,
    folder: Path,
    callbacks: Callbacks,
    *,
    on_plan: Callable[[Sequence[PlannedRun], Sequence[PlannedRun]], None] = lambda todo, later: None,
    jobs: int = 1,
) -> list[Laid]:
    """Run all of it, or what is left; twice where controls are tuned, since their runs depend on the first ones.

    `on_plan` is told each time what is to be run now, and what stands in for the runs that follow.
    """
    laid = lay_all(asked, folder)
    while todo := missing(laid):
        on_plan(todo, waiting(laid))
        try:
            run_planned(todo, callbacks, jobs=min(jobs, len(todo)))
        except Interrupted as error:
            raise Interrupted(str(error).replace("sweep", "paper", 1)) from None
        except SpecError as error:
            raise SpecError(str(error).replace("--out", "--runs")) from None
        laid = lay_all(asked, folder)
    return laid
