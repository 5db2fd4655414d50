"""How many processes a run gets: as many as asked for, or by its size alone. It decides nothing but the time it takes.

A worker costs about two seconds before its first piece. Without `engine.workers` there is one for each core if the
whole run is worth it (`WORTH`) and a round too (`ROUND_WORTH`), counted in (parameters x samples) that clients pass
through the model: about ten seconds and twenty milliseconds on one core of 2025.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from dragfl.config.spec import Experiment, load
from dragfl.engine.backends import Backend
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.backends.pool import PoolBackend
from dragfl.engine.backends.ray import RayBackend, require_ray
from dragfl.engine.worker import Worker
from dragfl.errors import DragflError, SpecError

WORTH = 7e10
ROUND_WORTH = 1e8
ENTRY_POINT = "dragfl.build:worker_from_tables"
PIECE_WORTH = 2e8  # clients are dealt to workers in pieces of some milliseconds, to save messages


def choose(experiment: Experiment, worker: Worker) -> Backend:
    """The executor of a prepared experiment."""
    if experiment.engine.executor == "ray":
        return _on_ray(experiment, worker)
    asked, client = experiment.engine.workers, client_work(worker)
    cohort = worker.info.per_round
    workers = min(cores() if asked == "auto" else asked, cohort)
    large = client * cohort >= ROUND_WORTH and client * cohort * experiment.rounds >= WORTH
    if workers == 1 or (asked == "auto" and not (large and worker.info.device == "cpu")):
        return LocalBackend(worker)
    why = None if worker.info.device == "cpu" else f"they need engine.device = 'cpu', not '{worker.info.device}'"
    why = why or unnamed(experiment)
    if why is not None:
        if asked == "auto":
            return LocalBackend(worker)
        raise SpecError(f"engine.workers: {asked} worker processes cannot be told of this experiment: {why}")
    tables = experiment.tables()
    reusable = not any(":" in word for word in _words(tables))
    piece = int(min(max(1.0, PIECE_WORTH / client), 64.0))
    return PoolBackend(worker, ENTRY_POINT, tables, workers, piece, reusable, required=asked != "auto")


def _on_ray(experiment: Experiment, worker: Worker) -> Backend:
    """A cluster's workers: they are given the data, so those need no name."""
    require_ray()
    asked, named = experiment.engine.workers, replace(experiment, dataset="digits")
    why = None if worker.info.device == "cpu" else f"they need engine.device = 'cpu', not '{worker.info.device}'"
    why = why or unnamed(named, "set engine.executor = 'local'")
    if why is not None:
        raise SpecError(f"engine.executor: workers of a Ray cluster cannot be told of this experiment: {why}")
    blocks = -(-worker.info.per_round // (experiment.engine.block or 1))
    return RayBackend(worker, ENTRY_POINT, named.tables(), None if asked == "auto" else asked, blocks, cores())


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def client_work(worker: Worker) -> float:
    """Parameters x samples that a client passes through the model in a round, about."""
    clients, samples = worker.clients, len(worker.dataset.y) / worker.info.clients
    span = clients.local_steps if clients.local_epochs is None else clients.local_epochs
    most = span[1] if isinstance(span, tuple) else span or 1
    return worker.info.dim * most * (clients.batch_size if clients.local_epochs is None else max(1.0, samples))


def unnamed(experiment: Experiment, instead: str = "set engine.workers = 1") -> str | None:
    """Why the resolved spec does not say all there is to the experiment; None if it does.

    A worker process loads the spec as a later `dragfl resume` would, so an object without a name cannot reach it.
    """
    way_out = f"give module:attr of what can be imported, or {instead}"
    tables = experiment.tables()
    local = next((word for word in _words(tables) if word.startswith(("__main__:", "object:"))), None)
    if local is not None:
        return f"'{local}' exists in this process alone; {way_out}"
    try:
        json.dumps(tables)
        again = load(tables)
    except (DragflError, TypeError) as error:
        return f"{error}; {way_out}"
    for key in ("dataset", "partition", "algorithm", "attack", "model"):
        if not _same(getattr(experiment, key), getattr(again, key)):
            return f"{key} holds an object that the spec cannot spell out; {way_out}"
    return None


def _words(value: Any) -> Iterator[str]:
    """Every string in a table."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)


def _same(one: Any, other: Any) -> bool:
    """Equal in all that matters; objects that keep nothing are equal to their like."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, str | int | float | bool | bytes | frozenset | set):
        return bool(one == other)
    return not getattr(one, "__dict__", True)
