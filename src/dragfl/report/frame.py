"""All runs as one tidy pandas frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dragfl.report.find import CLASS_METRIC, RunLike, load_runs
from dragfl.report.groups import fingerprints, seed_of
from dragfl.report.labels import FINGERPRINT, flatten
from dragfl.runs.directory import Run

if TYPE_CHECKING:
    import pandas as pd

NOT_FINITE = {"nan", "inf", "-inf"}  # how logs write such numbers


def frame(runs: RunLike | Sequence[RunLike], *, clients: bool = False) -> pd.DataFrame:
    """One row for each run and round: `run`, `name`, `seed`, state, `round`, metrics, timing, and every setting.

    `fingerprint.data`, `fingerprint.model` and `fingerprint.code` tell runs apart that have equal settings.

    `runs` are run directories, `Run`s, or folders that contain run directories at any depth. Settings are dotted
    columns such as `clients.lr`. A value that was not measured in a round is NaN. With `clients=True` there is one row
    for each run, round and sampled client, with the telemetry of clients.jsonl instead of the metrics. Damaged runs and
    tuning runs are left out, with a warning.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ModuleNotFoundError("dragfl.frame() needs pandas: pip install pandas") from None
    found = load_runs(runs, clients=clients).warn()
    logs = [_client_columns(run) if clients else _round_columns(run) for run in found]
    lengths = [len(log["round"]) for log in logs]
    about = [_about(run) for run in found]
    settings = [
        {k: v for k, v in flatten(run.spec | {FINGERPRINT: fingerprints(run)}).items() if k not in ("name", "seed")}
        for run in found
    ]
    columns = _repeated(about, lengths)
    for key in dict.fromkeys(key for log in logs for key in log):
        values: list[Any] = []
        for log, length in zip(logs, lengths, strict=True):
            values.extend(log.get(key) or [None] * length)
        columns[key] = _array(values)
    for key, column in _repeated(settings, lengths).items():
        columns[key if key not in columns else f"spec.{key}"] = column
    return pd.DataFrame(columns)


def _about(run: Run) -> dict[str, Any]:
    state = {"finished": run.finished, "diverged": run.diverged}
    return {"run": str(run.path), "name": run.name, "seed": seed_of(run), **state}


def _repeated(tables: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """The same values in all rows of a run."""
    keys = dict.fromkeys(key for table in tables for key in table)
    return {key: np.repeat(_array([table.get(key) for table in tables]), lengths) for key in keys}


def _round_columns(run: Run) -> dict[str, list[Any]]:
    """The metrics and timing of a run by column; the accuracy of each class has a column."""
    columns = _transposed(run.metrics)
    if CLASS_METRIC in columns:
        lists = columns.pop(CLASS_METRIC)
        for i in range(max(len(values or ()) for values in lists)):
            columns[f"{CLASS_METRIC}_{i}"] = [values[i] if values and i < len(values) else None for values in lists]
    timing = {line["round"]: line for line in run.timing}
    for key in dict.fromkeys(key for line in run.timing for key in line if key not in columns):
        columns[key] = [timing.get(t, {}).get(key) for t in columns["round"]]
    return columns


def _client_columns(run: Run) -> dict[str, list[Any]]:
    """The telemetry of a run by column, one entry for each sampled client of each round."""
    columns: dict[str, list[Any]] = {
        "round": [t for line in run.clients for t in [line["round"]] * len(line["client"])]
    }
    for key in dict.fromkeys(key for line in run.clients for key in line if key != "round"):
        columns[key] = [value for line in run.clients for value in line.get(key) or [None] * len(line["client"])]
    return columns


def _transposed(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(["round", *(key for line in lines for key in line)])
    return {key: [line.get(key) for line in lines] for key in keys}


def _array(values: list[Any]) -> np.ndarray:
    """int, bool or float (None is NaN) where all values are; else objects, with lists and tables as JSON."""
    kinds = set(map(type, values))
    if kinds <= {int} and all(abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    if kinds == {bool}:
        return np.array(values)
    if kinds <= {int, float, type(None)} or (kinds <= {int, float, type(None), str} and _only_numbers(values)):
        return np.array([np.nan if value is None else float(value) for value in values])
    column = np.empty(len(values), dtype=object)
    column[:] = [json.dumps(value) if isinstance(value, (list, dict)) else value for value in values]
    return column


def _only_numbers(values: Iterable[Any]) -> bool:
    return all(value in NOT_FINITE for value in values if isinstance(value, str))
