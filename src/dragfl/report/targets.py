"""Rounds, bytes and seconds until the target accuracy, over the runs of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragfl.report.numbers import RoundsToTarget
from dragfl.runs.directory import Run


def rounds_completed(run: Run) -> int:
    return int(run.metrics[-1]["round"]) if run.metrics else int((run.result or {}).get("rounds", 0))


def rounds_to_target(runs: Sequence[Run], target: float | None) -> RoundsToTarget:
    return _to_target(runs, target, lambda run, rounds: rounds)


def costs_to_target(runs: Sequence[Run], target: float | None) -> tuple[RoundsToTarget | None, RoundsToTarget | None]:
    """(bytes in both directions, seconds without evaluation) of all rounds up to the first one at the target.

    None where a run has not logged them for all these rounds.
    """
    costs: list[RoundsToTarget | None] = []
    for cost in (bytes_until, seconds_until):
        try:
            costs.append(_to_target(runs, target, cost))
        except LookupError:
            costs.append(None)
    return costs[0], costs[1]


def bytes_until(run: Run, rounds: int) -> float:
    """Bytes sent in both directions in the first rounds."""
    return float(sum(m["bytes_up"] + m["bytes_down"] for m in run.metrics if m["round"] <= rounds))


def seconds_until(run: Run, rounds: int) -> float:
    """Seconds of the first rounds without evaluation; `LookupError` if timing.jsonl does not have all of them."""
    seconds = {t["round"]: float(t["seconds"]) - float(t.get("evaluation_seconds", 0.0)) for t in run.timing}
    return sum(seconds[m["round"]] for m in run.metrics if m["round"] <= rounds)


def _to_target(runs: Sequence[Run], target: float | None, cost: Callable[[Run, int], float]) -> RoundsToTarget:
    if target is None:
        return RoundsToTarget(())
    reached: list[float] = []
    censored: list[float] = []
    unfinished: list[float] = []
    diverged: list[int] = []
    for run in runs:
        if run.diverged_at is not None:
            diverged.append(run.diverged_at)
        elif (first := run.rounds_to(target)) is not None:
            reached.append(cost(run, first))
        else:
            (censored if run.finished else unfinished).append(cost(run, rounds_completed(run)))
    return RoundsToTarget(tuple(reached), tuple(censored), tuple(unfinished), tuple(diverged))
