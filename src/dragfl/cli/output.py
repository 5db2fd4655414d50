"""The last lines of a command: the result of a run, the path of a report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.errors import SpecError

if TYPE_CHECKING:
    from dragfl.report.nodes import NodeRow
    from dragfl.runs.directory import Run
    from dragfl.runs.sweep_plan import PlannedRun


def print_result(run: Run, args: argparse.Namespace, *, already_done: bool = False) -> int:
    """Print how a finished run ended; returns the exit code (4 if it diverged)."""
    if args.json:
        nodes = {"nodes": [row.values() for row in _node_rows(run)]} if run.nodes else {}
        print(json.dumps({"path": str(run.path), "already_done": already_done, **(run.result or {}), **nodes}))
    elif not args.quiet:
        if already_done:
            print("already finished, nothing to run")
        print(describe_result(run))
        if run.nodes:
            print_nodes(_node_rows(run))
        print(f"run directory: {run.path}")
    return 4 if run.diverged else 0


def describe_result(run: Run) -> str:
    """One line: rounds, accuracy and, if there is one, the target."""
    result = run.result or {}
    if run.diverged:
        return str(result["message"])
    parts = [f"{result['rounds']} rounds"]
    if result.get("accuracy") is not None:
        parts.append(f"accuracy {result['accuracy']:.4f} (best {result['best_accuracy']:.4f})")
    target, reached = result.get("target_accuracy"), result.get("rounds_to_target")
    if target is not None:
        when = f"first reached in round {reached}" if reached else f"not reached in {result['rounds']} rounds"
        parts.append(f"target {target:g} {when}")
    return ", ".join(parts)


def print_nodes(rows: Sequence[NodeRow], label: str = "") -> None:
    """How many results of a run on Flower are missing, and if there are any, of which nodes and why."""
    from rich.console import Console

    from dragfl.report.nodes import describe_missing, rich_node_table

    print(f"{label}{len(rows)} nodes, {describe_missing(rows)} results are missing")
    if any(row.missing for row in rows):
        Console().print(rich_node_table(rows))


def _node_rows(run: Run) -> list[NodeRow]:
    from dragfl.report.nodes import node_rows

    return node_rows(run)


def print_plan(planned: Iterable[PlannedRun], final: int, *, as_json: bool) -> int:
    """The run directories of a dry run; `final` runs have directories that depend on the values that tuning selects."""
    folders = [str(p.folder) for p in planned]
    if as_json:
        print(json.dumps({"runs": folders, "final_runs": final}))
        return 0
    print("\n".join([*folders, *([f"and {final} final runs with the selected values"] if final else [])]))
    return 0


def print_report(write_report: Callable[[], Path], *, quiet: bool = False) -> int:
    """Write a report and print its path; without a plotting library, print how to install one."""
    try:
        page = write_report()
    except SpecError as error:
        print(f"no figures: {error}")
        return 0
    if not quiet:
        print(f"report: {page}")
    return 0
