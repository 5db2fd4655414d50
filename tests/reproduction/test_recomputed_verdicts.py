"""Verdicts of the page, computed again from its JSON files by other code than the package's.

Here a claim is a formula on the records of one seed, positive where it holds: a pair of the smallest and the largest
possible value, since a run may have ended before its target. Rules of the page: PASS if the claim holds for the median
and all seeds, MIXED if not for all seeds or only for some settings, FAIL if the median contradicts it, UNDECIDED with
too few seeds or an open median, NOT RUN without runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

import pytest

from dragfl.reproduction.results import load_summaries, verdict_rows

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"
BASELINES = ["fedavg", "fedprox", "scaffold", "adabest"]
EACH_C = ["br_drag", "br_drag_25", "br_drag_50"]
STRONGER = ["label_flip", "alie", "ipm", "min_max", "min_sum", "fang_trim", "adaptive_br_drag"]
CHANCE = {"emnist47": 1 / 47, "cifar10": 1 / 10}
TINY = 1e-12  # for relations that also hold for equal values

Pair = tuple[float, float]
Curves = dict[str, dict[str, Any]]  # curve -> record


def read_curves(figure: str) -> dict[str, dict[int, dict[str, Any]]]:
    """curve -> seed -> record; CURVE_own has the accuracies of the model that the algorithm's paper evaluates."""
    path = FOLDER / f"{figure}.json"
    table = json.loads(path.read_text()) if path.is_file() else {"curves": {}}
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for curve, records in table["curves"].items():
        for record in records:
            for name, values in ((curve, record["accuracy"]), (f"{curve}_own", record.get("own", []))):
                packed = bool(values) and not isinstance(values[0], list)
                points = [(record["every"] * (i + 1), v) for i, v in enumerate(values)] if packed else values
                lost = record["ended"] == "diverged"
                if points or lost:
                    found.setdefault(name, {})[record["seed"]] = {
                        "points": points,
                        "end": record["limit"] if lost or record["ended"] == "rounds" else points[-1][0],
                        "lost": lost,
                        "numbers": record["numbers"],
                        "target": table["target"],
                        "chance": CHANCE[table["dataset"]],
                    }
    return found


def last_accuracies(curves: Curves, name: str) -> list[float]:
    """Of the last 100 of the rounds that all runs have, or of the last half of fewer."""
    end = min((record["end"] for record in curves.values() if not record["lost"]), default=0)
    points = [(t, value) for t, value in curves[name]["points"] if t <= end]
    if curves[name]["lost"]:
        return [curves[name]["chance"]]
    return [value for t, value in points if t > points[-1][0] - min(100, points[-1][0] // 2)]


def final(curves: Curves, name: str) -> float:
    return fmean(last_accuracies(curves, name))


def rounds(record: dict[str, Any], target: float) -> Pair:
    if record["lost"]:
        return inf, inf
    first = [t for t, value in record["points"] if value >= target]
    return (first[0], first[0]) if first else (record["end"] + 1e-9, inf)


def faster(own: str, others: Sequence[str]) -> Callable[[Curves], Pair]:
    """1 minus the ratio of rounds to those of the fastest of the others; 0 if neither ever reaches the target."""

    def lead(own: float, other: float) -> float:
        return 0.0 if own == other == inf else 1 - own / other

    def value(curves: Curves) -> Pair:
        low, high = rounds(curves[own], curves[own]["target"])
        pairs = [rounds(curves[other], curves[own]["target"]) for other in others]
        best_low, best_high = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
        return lead(high, best_low), lead(low, best_high)

    return value


def more_accurate(own: str, others: Sequence[str], of: Callable[..., float] = final) -> Callable[[Curves], Pair]:
    def value(curves: Curves) -> Pair:
        return (of(curves, own) - max(of(curves, other) for other in others),) * 2

    return value


def rank(curves: Curves, own: str, others: Sequence[str]) -> Pair:
    low, high = rounds(curves[own], curves[own]["target"])
    rest = [rounds(curves[other], curves[own]["target"]) for other in others]
    return 1 + sum(pair[1] < low for pair in rest), 1 + sum(pair[0] < high for pair in rest)


def judge(value: Callable[..., Pair], needed: int, *terms: tuple[str, Sequence[str]]) -> str:
    """The verdict on one relation; `value` gets the curves of each term: a figure and names of curves."""
    tables = [(read_curves(figure), names) for figure, names in terms]
    if not all(name in table for table, names in tables for name in names):
        return "NOT RUN"
    seeds = set.intersection(*(set(table[name]) for table, names in tables for name in names))
    if len(seeds) < needed:
        return "UNDECIDED" if seeds else "NOT RUN"
    pairs = [value(*({name: table[name][seed] for name in names} for table, names in tables)) for seed in seeds]
    low, high = (median(pair[i] for pair in pairs) for i in (0, 1))
    if low <= 0 < high:
        return "UNDECIDED"
    return "FAIL" if high <= 0 else "PASS" if all(pair[0] > 0 for pair in pairs) else "MIXED"


def weakest(*verdicts: str) -> str:
    """Of relations that must all hold."""
    return next(v for v in ("FAIL", "NOT RUN", "UNDECIDED", "MIXED", "PASS") if v in verdicts)


def over_settings(*verdicts: str) -> str:
    if "FAIL" in verdicts and {"PASS", "MIXED"} & set(verdicts):
        return "MIXED"
    return next(v for v in ("NOT RUN", "UNDECIDED", "FAIL", "MIXED", "PASS") if v in verdicts)


def compare(figure: str, own: str, others: Sequence[str], kind: Any = more_accurate, needed: int = 3) -> str:
    return judge(kind(own, others), needed, (figure, [own, *others]))


def steadier(own: str, others: Sequence[str]) -> Callable[[Curves], Pair]:
    def deviation(curves: Curves, name: str) -> float:
        return inf if curves[name]["lost"] else pstdev(last_accuracies(curves, name))

    return lambda curves: (deviation(curves, others[0]) - deviation(curves, own),) * 2


def number_above(name: str) -> Callable[..., Any]:
    return lambda own, others: more_accurate(own, others, lambda curves, curve: curves[curve]["numbers"][name])


def fraction_of(share: float) -> Callable[..., Any]:
    """At least this share of the final accuracy of another curve."""
    return lambda own, others: lambda c: (final(c, own) / final(c, others[0]) - share + TINY,) * 2


def over_whole_run(curves: Curves, name: str) -> float:
    return fmean(value for _, value in curves[name]["points"])


def larger_lead_at_full_participation() -> str:
    """The lead is the number of rounds of the best baseline over DRAG's."""

    def lead(curves: Curves) -> Pair:
        low, high = rounds(curves["drag"], curves["drag"]["target"])
        pairs = [rounds(curves[name], curves[name]["target"]) for name in BASELINES]
        return (0.0 if high == inf else min(p[0] for p in pairs) / high), min(p[1] for p in pairs) / low

    def value(full: Curves, partial: Curves) -> Pair:
        return lead(full)[0] - lead(partial)[1], lead(full)[1] - lead(partial)[0]

    return judge(value, 3, ("fig3a", ["drag", *BASELINES]), ("fig3b", ["drag", *BASELINES]))


def same_rank(figure: str) -> str:
    def value(curves: Curves) -> Pair:
        new, old = (rank(curves, own, BASELINES) for own in ("drag_authors", "drag"))
        if new[0] == new[1] == old[0] == old[1]:
            return 1, 1
        return (-1, 1) if new[0] <= old[1] and old[0] <= new[1] else (-1, -1)

    return judge(value, 3, (figure, ["drag_authors", "drag", *BASELINES]))


def no_defence_is_always_better() -> str:
    """For each defence there is an attack under which BR-DRAG is at least as accurate."""
    names = ["br_drag", "nnm", "gm", "cc"]
    curves = [f"{name}-{attack}" for name in names for attack in STRONGER]

    def value(c: Curves) -> Pair:
        leads = [max(final(c, f"br_drag-{a}") - final(c, f"{rival}-{a}") for a in STRONGER) for rival in names[1:]]
        return (min(leads) + TINY,) * 2

    return judge(value, 3, ("attacks", curves))


def fltrust_loses_more_on_non_iid_data() -> str:
    def value(non_iid: Curves, iid: Curves) -> Pair:
        losses = [final(c, "clean") - final(c, "fltrust") for c in (non_iid, iid)]
        return (losses[0] - losses[1],) * 2

    return judge(value, 5, ("fig8", ["clean", "fltrust"]), ("fig7", ["clean", "fltrust"]))


def more_honest_updates_point_away() -> str:
    def value(non_iid: Curves, iid: Curves) -> Pair:
        return (non_iid["fltrust"]["numbers"]["against"] - iid["fltrust"]["numbers"]["against"],) * 2

    return judge(value, 5, ("fig8", ["fltrust"]), ("fig7", ["fltrust"]))


def at_most(figure: str, curve: str, bound: float) -> str:
    return judge(lambda c: (bound - final(c, curve) + TINY,) * 2, 3, (figure, [curve]))


def at_least(figure: str, curve: str, bound: float) -> str:
    return judge(lambda c: (final(c, curve) - bound + TINY,) * 2, 3, (figure, [curve]))


def some_weight_is_negative(curve: str) -> str:
    return judge(lambda c: (c[curve]["numbers"]["reversed"],) * 2, 3, ("extremes", [curve]))


OURS_AGAINST = ["scaffold", "adabest", "drag", "scaffold_drag", "fedavgm", "fedexp"]

RECOMPUTED: dict[str, Callable[[], str]] = {
    "C1": lambda: compare("fig3a", "drag", BASELINES, faster),
    "C2": lambda: compare("fig3b", "drag", BASELINES, faster),
    "C7a": larger_lead_at_full_participation,
    "C8": lambda: judge(
        lambda c: (TINY - abs(c["drag"]["numbers"]["bytes"] - c["fedavg"]["numbers"]["bytes"]),) * 2,
        1,
        ("fig3a", ["drag", "fedavg"]),
    ),
    "C35": lambda: weakest(
        *(compare(f, own, ["fedavg", "fedprox"], faster) for f in ("fig3a", "fig3b") for own in ("scaffold", "drag"))
    ),
    "C11a": lambda: compare("controls3a", "drag", ["fedavg_tuned", "fedavgm", "fedexp"], faster),
    "C11b": lambda: compare("controls3b", "drag", ["fedavg_tuned", "fedavgm", "fedexp"], faster),
    "C11e": lambda: compare("controls3a", "drag", ["fedexp_own"], faster),
    "C46a": lambda: compare("ours3a", "auto_scaffold", OURS_AGAINST, faster),
    "C46b": lambda: compare("ours3b", "auto_scaffold", OURS_AGAINST, faster),
    "C12a": lambda: compare("ablation_c", "c25", ["c50"], faster),
    "C12b": lambda: compare("ablation_alpha", "alpha06", ["alpha01", "alpha10"], faster),
    "C13": lambda: weakest(same_rank("authors3a"), same_rank("authors3b")),
    "C15": lambda: weakest(
        compare("plateau", "fedavg_decay", ["drag_25"]),
        compare("plateau", "drag_25", ["drag_10"], number_above("mean_norm")),
    ),
    "C18a": lambda: over_settings(*(compare("fig5", own, ["fltrust"], steadier) for own in EACH_C)),
    "C21a": lambda: compare("fig7", "fedavg", ["clean"], fraction_of(0.8), 5),
    "C21c": lambda: over_settings(*(compare("fig7", own, ["fedavg", "fltrust"], needed=5) for own in EACH_C)),
    "C22a": fltrust_loses_more_on_non_iid_data,
    "C22b": lambda: over_settings(*(compare("fig8", own, ["fltrust"], needed=5) for own in EACH_C)),
    "C23a": more_honest_updates_point_away,
    "C24b": lambda: weakest(*(compare("extremes", own, ["c010"]) for own in ("c025", "c050"))),
    "C24c": lambda: over_settings(*(some_weight_is_negative(curve) for curve in ("c075", "c100"))),
    "C26": lambda: compare("root", "leak", ["br_drag"]),
    "C27": lambda: weakest(*(compare("root", "br_drag", [other]) for other in ("size10", "size100", "biased"))),
    "C28": lambda: compare("root", "accumulate", ["br_drag"], lambda a, b: more_accurate(a, b, over_whole_run)),
    "C30": no_defence_is_always_better,
    "C31a": lambda: over_settings(
        *(weakest(*(at_least("majority", f"{c}_{n}", 0.5) for n in (6, 8))) for c in ("c025", "c050"))
    ),
    "C31b": lambda: weakest(*(at_most("majority", f"{r}_{n}", 0.2) for r in ("krum", "trim", "nnm") for n in (6, 8))),
    "C42": lambda: over_settings(
        *(weakest(*(compare(f, own, ["fedavg", "fltrust"], needed=5) for f in ("fig7", "fig8"))) for own in EACH_C)
    ),
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    return {row.claim: row.verdict for row in verdict_rows(load_summaries(FOLDER))}


@pytest.mark.parametrize("claim", RECOMPUTED)
def test_a_verdict_of_the_page_is_the_one_computed_here(claim: str, verdicts: dict[str, str]) -> None:
    assert RECOMPUTED[claim]() == verdicts[claim]


def test_at_least_ten_of_them_are_decided(verdicts: dict[str, str]) -> None:
    decided = [claim for claim in RECOMPUTED if verdicts[claim] in ("PASS", "MIXED", "FAIL")]
    assert len(decided) >= 10
