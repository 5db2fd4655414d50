"""What an open claim is missing: runs, seeds or rounds, and the computing time for them.

Times are for one core, from the recorded times of the same curve, else of the same figure, else of runs of this kind.
Rounds that are missing to a target are extrapolated from the last half of a run. Learning slows down, so they are a
lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import median

from dragfl.reproduction.figure import Curve, load_figure
from dragfl.reproduction.run_time import estimate_round_seconds, format_duration
from dragfl.reproduction.runs import FigureRequest, resolve_run
from dragfl.reproduction.summary import Record, Summaries
from dragfl.reproduction.verdicts import ClaimResult, ComparisonResult, Verdict, target_of

OUT_OF_REACH = 10  # times the rounds of a run
MOST_NAMES = 6  # more curves than this are counted, not named


@dataclass(frozen=True)
class Missing:
    """The runs and rounds without which a claim stays open."""

    seeds: int  # that the claim needs
    runs: dict[tuple[str, str], int]  # (figure, curve) -> number of seeds to run
    rounds: dict[tuple[str, str, int], float]  # (figure, curve, seed) -> more rounds to the target; inf: out of reach

    def seconds(self, summaries: Summaries) -> float:
        """Computing time for the missing runs and for the rounds that are within reach."""
        new = sum(count * run_seconds(*key, summaries) for key, count in self.runs.items())
        more = [(key, rounds) for key, rounds in self.rounds.items() if math.isfinite(rounds)]
        return new + sum(rounds * round_seconds(figure, curve, summaries) for (figure, curve, _), rounds in more)


def find_missing(result: ClaimResult, summaries: Summaries) -> Missing:
    """What a claim is missing that is UNDECIDED or NOT RUN."""
    runs: dict[tuple[str, str], int] = {}
    rounds: dict[tuple[str, str, int], float] = {}
    needed = result.claim.seeds
    for each in result.results:
        if each.verdict is Verdict.NOT_RUN or (each.verdict is Verdict.UNDECIDED and len(each.values) < needed):
            for term in each.comparison.terms:
                for curve in term.curves:
                    records = summaries[term.figure].curves.get(curve, {}) if term.figure in summaries else {}
                    if absent := sum(seed not in records for seed in range(needed)):
                        runs[term.figure, _with_runs(term.figure, curve).id] = absent
        elif each.verdict is Verdict.UNDECIDED and each.comparison.metric == "rounds":
            rounds |= _missing_rounds(each, summaries)
    return Missing(needed, runs, rounds)


def _missing_rounds(result: ComparisonResult, summaries: Summaries) -> dict[tuple[str, str, int], float]:
    """More rounds of the runs that did not reach the target, in the seeds that are open."""
    found = {}
    for term in result.comparison.terms:
        summary = summaries[term.figure]
        target = target_of(result.comparison, summary)
        for seed in (seed for seed, holds in result.holds.items() if holds is None and target is not None):
            for curve in term.curves:
                record = summary.curves[curve][seed]
                if target is not None and not record.diverged and record.rounds_to(target) is None:
                    found[term.figure, curve, seed] = rounds_beyond(record, target)
    return found


def rounds_beyond(record: Record, target: float) -> float:
    """More rounds to a target at the mean rate of the last half of the run; infinite if it is out of reach."""
    half = [(t, value) for t, value in record.accuracy if t >= record.last / 2]
    if len(half) < 2:
        return math.inf
    (first, before), (last, after) = half[0], half[-1]
    rate = (after - before) / (last - first)
    needed = (target - after) / rate if rate > 0 else math.inf
    return math.ceil(needed) if needed <= OUT_OF_REACH * record.last else math.inf


def round_seconds(figure: str, curve: str, summaries: Summaries) -> float:
    """Seconds for a round: the median over the runs of the curve, else of the figure, else an estimate."""
    curves = summaries[figure].curves if figure in summaries else {}
    own, all_curves = curves.get(curve, {}).values(), [r for records in curves.values() for r in records.values()]
    for records in (own, all_curves):
        if measured := [record.seconds / record.last for record in records if record.seconds and record.last]:
            return median(measured)
    return _estimated_round_seconds(figure, curve)


@cache
def _estimated_round_seconds(figure: str, curve: str) -> float:
    found, drawn = load_figure(figure), _with_runs(figure, curve)
    tuned = [] if drawn.tune is None else [f"{drawn.tune.key}={drawn.tune.values[0]}"]
    return estimate_round_seconds(resolve_run(FigureRequest(found, found.datasets[0], ()), [*drawn.set, *tuned], 0))


def run_seconds(figure: str, curve: str, summaries: Summaries) -> float:
    """Seconds for a run: the median over the curve's runs, which may stop early; else for the maximum of rounds."""
    summary = summaries.get(figure)
    if summary is not None and (measured := [r.seconds for r in summary.curves.get(curve, {}).values() if r.seconds]):
        return median(measured)
    rounds = load_figure(figure).rounds if summary is None else summary.rounds
    return rounds * round_seconds(figure, curve, summaries)


def describe_missing(result: ClaimResult, summaries: Summaries) -> str:
    """`2 more seeds of DRAG, FedAvg in fig3a: about 3.5 h of computing.`; empty for a claim that is decided."""
    if result.verdict not in (Verdict.UNDECIDED, Verdict.NOT_RUN):
        return ""
    missing, texts = find_missing(result, summaries), []
    for count in sorted(set(missing.runs.values())):
        keys = [key for key, seeds in missing.runs.items() if seeds == count]
        more = "" if count == missing.seeds else "more "
        texts.append(f"{count} {more}seed{'s' * (count > 1)} of {_curve_names(keys)}")
    within = {key: rounds for key, rounds in missing.rounds.items() if math.isfinite(rounds)}
    if within:
        most = max(within.values())
        texts.append(f"at least {most:g} more rounds of {_curve_names((f, c) for f, c, _ in within)}")
    time = f": about {format_duration(missing.seconds(summaries))} of computing" if texts else ""
    beyond = [(figure, curve) for figure, curve, seed in missing.rounds if (figure, curve, seed) not in within]
    texts = [f"{' and '.join(texts)}{time}."] if texts else []
    if beyond:
        texts.append(f"The target is out of reach at the present rate of {_curve_names(beyond)}.")
    if full := _full_length_seconds(result, summaries):
        texts.append(f"With all rounds of the figures: at most about {format_duration(full)}.")
    return " ".join(texts)


def _full_length_seconds(result: ClaimResult, summaries: Summaries) -> float:
    """Computing time for the runs of figures that were run with fewer rounds, if none stops early; 0 without any."""
    terms = [term for each in result.results for term in each.comparison.terms if term.figure in summaries]
    keys = {(term.figure, _with_runs(term.figure, curve).id) for term in terms for curve in term.curves}
    short = [key for key in keys if summaries[key[0]].rounds < load_figure(key[0]).rounds]
    return sum(result.claim.seeds * load_figure(f).rounds * round_seconds(f, curve, summaries) for f, curve in short)


def _curve_names(keys: Iterable[tuple[str, str]]) -> str:
    """`DRAG, FedAvg (no attack) in fig7`, or their number if there are many."""
    by_figure: dict[str, dict[str, None]] = {}
    for figure, curve in keys:
        by_figure.setdefault(figure, {})[load_figure(figure)[curve].label_in_text] = None
    lists = {
        f: ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} curves" for f, names in by_figure.items()
    }
    return " and ".join(f"{names} in {figure}" for figure, names in lists.items())


def _with_runs(figure: str, curve: str) -> Curve:
    """The curve itself, or the one whose runs it shows."""
    found = load_figure(figure)[curve]
    return found if found.of is None else load_figure(figure)[found.of]
