"""The numbers of an arena as plain values, as `arena.json` and `dragfl arena --json` have them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dragfl.report.arena.results import WITHOUT_ATTACK, ArenaResults, Entry, Matrix, load_arena

Numbers = dict[str, Any]


def arena_numbers(folder: str | Path) -> Numbers:
    """The numbers of an arena so far, read from its run directories; docs/arena.md describes the layout."""
    return describe_results(load_arena(folder))


def describe_results(results: ArenaResults) -> Numbers:
    defences = results.matrices[0].defences
    return {
        "runs": len(results.runs),
        "unfinished": results.unfinished,
        "matrices": [_describe_matrix(matrix) for matrix in results.matrices],
        "seconds_per_round": {defence: results.seconds_per_round(defence) for defence in defences},
        "no_times": results.no_times or None,
    }


def _describe_matrix(matrix: Matrix) -> Numbers:
    added = matrix.clients_add()
    return {
        "partition": matrix.partition,
        "attackers": matrix.attackers,
        "clients_add": None if added is None else {**asdict(added), "difference": added.difference},
        "defences": [_describe_defence(matrix, defence) for defence in matrix.defences],
    }


def _describe_defence(matrix: Matrix, defence: str) -> Numbers:
    worst = matrix.worst_case(defence)
    return {
        "defence": defence,
        "trusted": defence in matrix.trusted,
        "worst_case": None if worst is None else {"accuracy": worst[0], "attack": worst[1]},
        "attacks": [
            {
                "attack": attack,
                "accuracy_drop": None if attack == WITHOUT_ATTACK else matrix.accuracy_drop(defence, attack),
                **_describe_entry(matrix.entries[defence, attack]),
            }
            for attack in (WITHOUT_ATTACK, *matrix.attacks)
        ],
    }


def _describe_entry(entry: Entry) -> Numbers:
    """JSON has keys of text only, so seeds are lists."""
    return {
        "accuracy": _describe_accuracy(entry),
        "diverged_at": list(entry.diverged_at),
        "exceeds_f": entry.exceeds_f,
        "unfinished": entry.unfinished,
        "reason": entry.reason or None,
        "failed": [{"seed": seed, "reason": reason} for seed, reason in entry.failed.items()],
        "strength": None if entry.strength is None else {k: entry.strength[k] for k in ("setting", "selected")},
        "detection": describe_detection(entry),
    }


def _describe_accuracy(entry: Entry) -> Numbers | None:
    if entry.accuracy is None:
        return None
    interval = entry.accuracy.interval
    return {
        "mean": entry.accuracy.mean,
        "std": entry.accuracy.std,
        "interval": None if interval is None else list(interval),
        "seeds": list(entry.per_seed),
        "per_seed": list(entry.per_seed.values()),
    }


def describe_detection(entry: Entry) -> Numbers | None:
    """Rates and AUC over all clients and rounds, and the counts of each client; None if the rule flags by no column."""
    if entry.flagged_by is None:
        return None
    rows = [(seed, client, count) for seed, counts in entry.flags.items() for client, count in counts.items()]
    columns = ("sampled", "attacked", "flagged", "caught", "true_positive_rate", "false_positive_rate")
    return {
        "flagged_by": entry.flagged_by,
        "true_positive_rate": entry.true_positive_rate,
        "false_positive_rate": entry.false_positive_rate,
        "auc": entry.auc,
        "clients": {
            "seed": [seed for seed, _, _ in rows],
            "client": [client for _, client, _ in rows],
            **{name: [getattr(count, name) for _, _, count in rows] for name in columns},
        },
    }
