"""What every spec must do: train, or be refused with a message that names the key and says what to do."""

from __future__ import annotations

import dataclasses
import itertools
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import dragfl
from dragfl.build import build_worker, client_work
from dragfl.config.spec import TABLES, TOP_KEYS
from dragfl.errors import DragflError

LARGEST_WORK = 1e7  # (parameters x samples) a round: a spec with more is built but not run
MOST_CLIENTS = 100
KEY = re.compile("|".join(["override '", "key=value", "experiment", r"\.toml:\d+", *TOP_KEYS, *TABLES]))
ADVICE = re.compile("; |did you mean|known: |expected |must be |needs |add for example|write ")

Outcome = Literal["trained", "built", "refused"]


def outcome(source: Mapping[str, Any] | str, overrides: Sequence[str] = ()) -> tuple[Outcome, str]:
    """What became of tables, or of the text of a TOML file; an error that is not dragfl's is raised."""
    try:
        return ("trained" if _train(_load(source, overrides)) else "built"), ""
    except DragflError as error:
        check_message(str(error))
        return "refused", str(error)


def check_message(message: str) -> None:
    assert "\n" not in message, f"more than one line: {message}"
    assert KEY.search(message), f"names no key: {message}"
    assert ADVICE.search(message), f"gives no advice: {message}"


def _load(source: Mapping[str, Any] | str, overrides: Sequence[str]) -> dragfl.Experiment:
    if not isinstance(source, str):
        return dragfl.load(source, *overrides)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_bytes(source.encode(errors="surrogatepass"))
        return dragfl.load(path, *overrides)


def _train(experiment: dragfl.Experiment) -> bool:
    """Build and train at most two rounds in this process; False if they are too much work for a test."""
    assert dragfl.load(experiment.tables()).tables() == experiment.tables()
    if experiment.engine.executor in ("ray", "flower"):
        return False
    experiment = dataclasses.replace(experiment, engine=dataclasses.replace(experiment.engine, workers=1))
    _, worker = build_worker(experiment)
    cohort = worker.info.per_round
    if client_work(worker) * cohort > LARGEST_WORK or cohort > MOST_CLIENTS:
        return False
    with dragfl.simulate(experiment) as simulation:
        return all(record.round for record in itertools.islice(simulation, 2))
