"""Simulate a federation in memory, round by round: `for record in dragfl.simulate(experiment): ...`."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragfl.build import Connect, build_federation
from dragfl.config.locate import with_key
from dragfl.config.spec import Experiment, as_experiment
from dragfl.engine.allocator import keep_freed_memory
from dragfl.engine.backends import DescribesRound
from dragfl.engine.round import run_round
from dragfl.engine.state import FederationState
from dragfl.engine.threads import one_thread, own_generator
from dragfl.lazy import Tensor
from dragfl.types import RoundRecord


class Simulation:
    """The rounds of an experiment as an iterator. The loop may stop after any round and continue later.

    Client states that do not fit in memory are kept in a file in `folder`, by default an anonymous temporary file.
    `connect` supplies clients that are not simulated.
    Worker processes end after the last round, on `close`, at the end of a `with` block, or when the simulation is
    garbage-collected. A later call starts them again.
    """

    def __init__(self, experiment: Experiment, folder: Path | None = None, connect: Connect | None = None) -> None:
        keep_freed_memory()
        self._names = experiment.tables()
        with with_key(self._names):
            self.experiment, self.federation = build_federation(experiment, folder, connect)
            self.state: FederationState = self.federation.start()
        self.at_target = False  # whether the run stops early because it reached the target accuracy

    def close(self) -> None:
        """End the worker processes."""
        self.federation.backend.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[RoundRecord]:
        while not self.done:
            yield self.step()

    @property
    def done(self) -> bool:
        return self.at_target or self.state.t >= self.experiment.rounds

    def step(self) -> RoundRecord:
        """Run one round, and evaluate the model if an evaluation is due."""
        with with_key(self._names):
            return self._step()

    def _step(self) -> RoundRecord:
        started = time.perf_counter()
        with one_thread(), own_generator():
            self.state, record = run_round(self.federation, self.state)
            if isinstance(self.federation.backend, DescribesRound):
                record = self.federation.backend.describe(record)
            trained = time.perf_counter()
            if record.round % self.experiment.evaluation.every == 0 or self.done:
                measured = {name: _json_number(value) for name, value in self.evaluate().items()}
                record = replace(record, metrics={**record.metrics, **measured})
                target = self.experiment.target_accuracy if self.experiment.stop_at_target else None
                reached = record.metrics.get(self.experiment.evaluation.target_metric, 0.0)
                self.at_target = target is not None and float(reached) >= target
        if self.done:
            self.close()
        ended = time.perf_counter()
        timing = {
            "seconds": ended - started,
            "evaluation_seconds": ended - trained,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MAXRSS_PER_MB,
        }
        return replace(record, timing=timing)

    def evaluate(self) -> dict[str, Any]:
        """Test metrics of the current model, such as accuracy and loss.

        `own_accuracy` and `own_loss` are those of the model that the algorithm's paper evaluates, where it is another.
        """
        metrics, own = self._measure(self.evaluated_model), self.state.own
        if own is None or self.federation.iterate.kind == "own":
            return metrics
        shown = self._measure(own)
        return metrics | {f"own_{name}": shown[name] for name in ("accuracy", "loss")}

    def _measure(self, w: Tensor) -> dict[str, Any]:
        fed, buffers = self.federation, self.state.buffers
        with one_thread():
            return fed.worker.evaluate(w, fed.backend.scores(w, buffers), buffers)

    @property
    def evaluated_model(self) -> Tensor:
        """The flat model that is evaluated: the current one, unless `evaluation.iterate` names another."""
        return self.federation.evaluated_model(self.state)

    def model(self) -> dict[str, Tensor]:
        """The evaluated model as a state dict."""
        return self.federation.model.named(self.evaluated_model, self.state.buffers)


def simulate(experiment: Experiment | str | Path | Mapping[str, Any]) -> Simulation:
    """Simulate an experiment in memory, round by round.

    Parameters
    ----------
    experiment
        What `load` returns, or what it takes: a TOML file or tables.

    Examples
    --------
    >>> import dragfl
    >>> experiment = dragfl.load({"rounds": 2, "model": {"name": "logistic"}})
    >>> [record.round for record in dragfl.simulate(experiment)]
    [1, 2]
    """
    return Simulation(as_experiment(experiment))


_MAXRSS_PER_MB = 1024.0 if sys.platform != "darwin" else 1024.0**2  # kilobytes on Linux, bytes on macOS


def _json_number(value: Any) -> Any:
    """The value, or its name where it is not finite: JSON has no such numbers."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
