"""Run directories of experiments without a name: runs/run-1, runs/run-2, ... Imports no torch."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dragfl.config.compare import same_result
from dragfl.config.spec import Experiment
from dragfl.config.tables import Top
from dragfl.errors import DamagedRun
from dragfl.runs.directory import find_run

RUNS = Path("runs")


def default_folder(experiment: Experiment) -> tuple[Experiment, Path]:
    """(the experiment, its run directory): runs/NAME.

    Without a name it gets one: that of the numbered run of the same experiment, else the next number.
    """
    if experiment.name == Top.name:
        experiment = replace(experiment, name=_numbered_name(experiment))
    return experiment, RUNS / experiment.name


def _numbered_name(experiment: Experiment) -> str:
    pattern = re.compile(rf"{Top.name}-(\d+)")
    found = {path: int(n[1]) for path in RUNS.glob(f"{Top.name}-*") if (n := pattern.fullmatch(path.name))}
    tables = experiment.tables()
    for path in sorted(found, key=found.__getitem__, reverse=True):
        with suppress(DamagedRun):
            if (run := find_run(path)) is not None and same_result(tables, run.spec):
                return path.name
    return f"{Top.name}-{max(found.values(), default=0) + 1}"
