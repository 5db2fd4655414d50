"""The summary as plain numbers: rows of a CSV file, and one JSON object. Needs neither torch nor matplotlib."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragfl.atomic import write_text
from dragfl.errors import SpecError
from dragfl.report.labels import flatten
from dragfl.report.numbers import MeanStd, RoundsToTarget
from dragfl.report.tables import Row, table_note

NOT_SETTINGS = re.compile(r"name|seed|attack\.exceeds_f|(checkpoint|state|engine)\..*")  # they do not change a result


def row_values(row: Row) -> dict[str, Any]:
    """A row as plain numbers by column name: accuracies as fractions, None where there is no value."""
    dataset, partition, attack = row.problem
    return {
        "label": row.label,
        "algorithm": row.algorithm,
        "dataset": dataset,
        "partition": partition,
        "attack": attack,
        "seeds": list(row.seeds),
        "rounds_planned": row.planned,
        "rounds_completed": list(row.rounds),
        "runs_unfinished": len(row.unfinished),
        "runs_diverged": len(row.diverged),
        **_spread("final_accuracy", row.final_accuracy),
        **_spread("best_accuracy", row.best_accuracy),
        **{name: v for key in row.clients for name, v in _spread(key, row.clients[key]).items()},
        **{f"class_accuracy_{i}_mean": value for i, value in enumerate(row.class_accuracy)},
        "target_accuracy": row.target,
        "target_on": row.target_on if row.target is not None else None,
        **_to_target("rounds_to_target", row.rounds_to_target),
        **_to_target("bytes_to_target", row.bytes_to_target),
        **_to_target("seconds_to_target", row.seconds_to_target),
        "runs_reached_target": len(row.rounds_to_target.reached),
        "runs_not_reached_target": row.rounds_to_target.counted - len(row.rounds_to_target.reached),
        "bytes_up_mean": row.bytes_up,
        "bytes_down_mean": row.bytes_down,
    }


def _spread(name: str, value: MeanStd | None) -> dict[str, Any]:
    """Mean, sample standard deviation, both ends of the 95 % t-interval of the mean, and the number of runs."""
    low, high = (None, None) if value is None or value.interval is None else value.interval
    numbers = (None, None, 0) if value is None else (value.mean, value.std, value.n)
    names = ("mean", "std", "n", "ci_low", "ci_high")
    return {f"{name}_{key}": number for key, number in zip(names, (*numbers, low, high), strict=True)}


def _to_target(name: str, value: RoundsToTarget | None) -> dict[str, Any]:
    """The median, None if it is not reached or unknown, and the range over the runs that reached the target."""
    reached = value.reached if value else ()
    middle = value.median if value and math.isfinite(value.median) else None
    return {
        f"{name}_median": middle,
        f"{name}_min": min(reached, default=None),
        f"{name}_max": max(reached, default=None),
    }


def differing_settings(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each row, the settings in which the rows differ, by dotted key; None where a row does not have one."""
    flats = [flatten(row.spec) for row in rows]
    keys = dict.fromkeys(key for flat in flats for key in flat if not NOT_SETTINGS.fullmatch(key))
    shown = [key for key in keys if len({repr(flat.get(key)) for flat in flats}) > 1]
    return [{key: flat.get(key) for key in shown} for flat in flats]


def report_values(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as one JSON object."""
    settings = differing_settings(rows)
    return {
        "rows": [plain({**row_values(row), "settings": s}) for row, s in zip(rows, settings, strict=True)],
        "note": table_note(rows),
    }


def plain(value: Any) -> Any:
    """The value with only what JSON has: numbers that are not finite are None, unknown types are text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def csv_text(rows: Sequence[Row]) -> str:
    """A header and one line for each row; lists are separated by spaces, a missing value is empty."""
    lines = [row_values(row) | settings for row, settings in zip(rows, differing_settings(rows), strict=True)]
    columns = list(dict.fromkeys(key for line in lines for key in line))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        writer.writerow([_cell(line.get(key)) for key in columns])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else value


def write_csv(rows: Sequence[Row], path: str | Path) -> Path:
    """Write the rows as numbers; return the path."""
    return write_export(Path(path), csv_text(rows))


def write_export(path: Path, text: str) -> Path:
    """Write a whole file, and the folders above it."""
    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise SpecError(f"report: {path} is a file; give a folder to write to")
