"""A federation as something to loop over: `for record in dragfl.simulate(experiment): ...`."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.build import Federation, prepare
from dragfl.config.spec import Experiment, as_experiment
from dragfl.engine.round import FederationState, play
from dragfl.engine.threads import one_thread, own_generator
from dragfl.types import EvaluatesIterate, RoundRecord

if TYPE_CHECKING:
    from torch import Tensor


class Simulation:
    """The rounds of an experiment, one at a time. Stop whenever you like; the state stays where it is.

    Client states too large for memory live in a file: in `folder`, or without one in a nameless temporary file.
    Worker processes, where there are some, are let go after the last round, by `close` or at the end of a `with`, or
    when nobody holds the simulation any more; whatever is asked for later starts them again.
    """

    def __init__(self, experiment: Experiment, folder: Path | None = None) -> None:
        self.federation: Federation = prepare(experiment, folder)
        self.state: FederationState = self.federation.start()
        self.at_target = False  # the accuracy to stop at was reached

    def close(self) -> None:
        """Let the worker processes go."""
        self.federation.executor.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def experiment(self) -> Experiment:
        return self.federation.experiment

    def __iter__(self) -> Iterator[RoundRecord]:
        while not self.done:
            yield self.step()

    @property
    def done(self) -> bool:
        return self.at_target or self.state.t >= self.experiment.rounds

    def step(self) -> RoundRecord:
        """Play one round; evaluate where the experiment says so."""
        started = time.perf_counter()
        with one_thread(), own_generator():
            self.state, record = play(self.federation, self.state)
            trained = time.perf_counter()
            if record.round % self.experiment.evaluation.every == 0 or self.done:
                found = {name: _number(value) for name, value in self.evaluate().items()}
                record = replace(record, metrics={**record.metrics, **found})
                target = self.experiment.target_accuracy if self.experiment.stop_at_target else None
                self.at_target = target is not None and (record.accuracy or 0.0) >= target
        if self.done:
            self.close()
        ended = time.perf_counter()
        timing = {
            "seconds": ended - started,
            "evaluation_seconds": ended - trained,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MAXRSS_PER_MB,
        }
        return replace(record, timing=timing)

    def evaluate(self) -> dict[str, float]:
        """Accuracy, loss and the like of the current model on the test data."""
        fed, w, buffers = self.federation, self.reported, self.state.buffers
        with one_thread():
            return fed.worker.evaluate(w, fed.executor.scores(w, buffers), buffers)

    @property
    def reported(self) -> Tensor:
        """The flat model to report: the current one, unless the algorithm names another iterate."""
        server, state = self.federation.algorithm.server, self.state
        return server.evaluated(state.server, state.w) if isinstance(server, EvaluatesIterate) else state.w

    def model(self) -> dict[str, Tensor]:
        """The current model as a state dict."""
        return self.federation.model.named(self.reported, self.state.buffers)


def simulate(experiment: Experiment | str | Path | Mapping[str, Any]) -> Simulation:
    """Run an experiment, or the tables or TOML file of one, in memory, round by round.

    >>> import dragfl
    >>> experiment = dragfl.load({"rounds": 2, "model": {"name": "logistic"}})
    >>> [record.round for record in dragfl.simulate(experiment)]
    [1, 2]
    """
    return Simulation(as_experiment(experiment))


_MAXRSS_PER_MB = 1024.0 if sys.platform != "darwin" else 1024.0**2  # kilobytes on Linux, bytes on macOS


def _number(value: float) -> float | str:
    return value if abs(value) < float("inf") else str(value)
