"""Experiment trackers: the metrics, settings and figures of a run in TensorBoard, MLflow or Weights & Biases.

A tracker gets the numbers of `metrics.jsonl` under the same names. A resumed run continues its tracker run, which gets
the missing rounds from the logs. A tracker that fails is closed with a warning, and the run continues.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dragfl import atomic
from dragfl.errors import DragflError, SpecError, nearest
from dragfl.runs.directory import Run
from dragfl.types import RoundRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("dragfl.trackers")

FILE = "tracker.json"  # in the run directory: tracker -> what it needs to continue its tracker run
TRACKERS = ("tensorboard", "mlflow", "wandb")  # the package, the extra and the module here have this name
Status = Literal["finished", "interrupted", "failed"]
Names = str | Sequence[str]


class Tracker(Protocol):
    """One tracker run. `opened` of a module makes it from the run directory and what `FILE` has stored for it."""

    identity: Mapping[str, Any]  # stored in `FILE`
    next_round: int  # the first round that it does not have

    def settings(self, run: Run) -> None: ...

    def metrics(self, round: int, values: Mapping[str, float]) -> None: ...

    def figure(self, round: int, name: str, figure: Figure) -> None: ...

    def close(self, status: Status) -> None: ...


def check_trackers(names: Names, folder: Path | None = None) -> tuple[str, ...]:
    """The given trackers and those that the run in `folder` has; `SpecError` if one is unknown or not installed."""
    given = (names,) if isinstance(names, str) else tuple(names)
    stored = _stored(folder) if folder is not None else {}
    for name in given:
        if name not in TRACKERS:
            raise SpecError(f"--log: unknown tracker {name!r}{nearest(str(name), TRACKERS)}")
    for name in (*given, *stored):
        if find_spec(name) is None:
            why = "" if name in given else f" (this run is logged there: {folder}/{FILE})"
            raise SpecError(f"--log: {name} is not installed{why}; pip install 'dragfl[{name}]'")
    return tuple(dict.fromkeys((*stored, *given)))


class Trackers(AbstractContextManager["Trackers"]):
    """The trackers of a run; each is closed for good, with a warning, at its first failure."""

    def __init__(self, names: Sequence[str], folder: Path, draw: Callable[[Run], Mapping[str, Figure]]) -> None:
        self._folder, self._names, self._draw = folder, names, draw
        self._open: dict[str, Tracker] = {}

    def __enter__(self) -> Trackers:
        """Open or continue the tracker runs, and log the settings and the rounds that they do not have."""
        stored = _stored(self._folder) if self._names else {}
        for name in self._names:
            self._try(name, lambda name=name: self._begin(name, stored))  # type: ignore[misc]
        return self

    def _begin(self, name: str, stored: dict[str, Any]) -> None:
        run = Run(self._folder)
        tracker: Tracker = import_module(f"{__name__}.{name}").opened(run, stored.get(name))
        self._open[name] = tracker
        if name not in stored:
            tracker.settings(run)
        stored[name] = dict(tracker.identity)
        atomic.write_json(self._folder / FILE, stored)
        for metrics, timing in zip(run.metrics, run.timing, strict=True):
            _log_round(tracker, metrics["round"], metrics, timing)

    def record(self, record: RoundRecord) -> None:
        """Log a round."""
        if self._open:
            self._each(lambda tracker: _log_round(tracker, record.round, record.metrics, record.timing))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Log the figures of a finished run and close all."""
        if self._open and kind is None:
            run, figures = Run(self._folder), dict[str, "Figure"]()
            self._try("figures", lambda: figures.update(self._draw(run)))
            for name, figure in figures.items():
                self._each(lambda tracker, n=name, f=figure: tracker.figure(len(run.metrics), n, f))  # type: ignore[misc]
        failed = error is not None and not (isinstance(error, DragflError) and error.exit_code == 5)
        status: Status = "finished" if kind is None else "failed" if failed else "interrupted"
        self._each(lambda tracker: tracker.close(status))

    def _each(self, action: Callable[[Tracker], object]) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, lambda tracker=tracker: action(tracker))  # type: ignore[misc]

    def _try(self, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # a failure of another package, disk or server must not stop the run
            self._open.pop(name, None)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            log.warning("%s: %s; the run continues without it", name, reason)


def _log_round(tracker: Tracker, round: int, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
    if round >= tracker.next_round:
        tracker.metrics(round, scalars(metrics, timing))


def scalars(metrics: Mapping[str, Any], timing: Mapping[str, Any] = {}) -> dict[str, float]:
    """The numbers of a round by name: `class_accuracy/3` for an entry of a list, `timing/seconds` for the clock.

    >>> scalars({"round": 1, "loss": "inf", "class_accuracy": [0.5, 1], "skipped": "too few"}, {"seconds": 2})
    {'loss': inf, 'class_accuracy/0': 0.5, 'class_accuracy/1': 1.0, 'timing/seconds': 2.0}
    """
    found: dict[str, float] = {}
    for prefix, values in (("", metrics), ("timing/", timing)):
        for name, value in values.items():
            entries = {f"{name}/{i}": v for i, v in enumerate(value)} if isinstance(value, list) else {name: value}
            for key, entry in entries.items():
                if key != "round" and (isinstance(entry, int | float) or entry in ("inf", "-inf", "nan")):
                    found[prefix + key] = float(entry)
    return found


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings of a spec by key path.

    >>> flat({"seed": 0, "clients": {"lr": 0.1, "local_steps": [1, 5]}})
    {'seed': 0, 'clients.lr': 0.1, 'clients.local_steps': '[1, 5]'}
    """
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return found


def _stored(folder: Path) -> dict[str, Any]:
    """What `FILE` holds; nothing if it is absent or damaged, and then the trackers begin a new run."""
    try:
        stored = json.loads((folder / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return {name: stored[name] for name in TRACKERS if name in stored} if isinstance(stored, dict) else {}
