"""Estimates of run time: from earlier runs of the same kind on this machine, else from the amount of work.

A round trains S x U x B samples; the seconds for a sample are known from earlier runs, or from one reference machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from dragfl.config.spec import Experiment
from dragfl.runs.directory import SPEC, Run, load_run
from dragfl.runs.sweep_plan import PlannedRun

# Measured on one core of an Intel Xeon server, for networks of the paper's width.
SECONDS_PER_1000_SAMPLES = {"mlp": 0.035, "cnn": 1.5, "logistic": 0.005}
DEFAULT_SECONDS_PER_1000_SAMPLES = 0.5
SECONDS_PER_ROUND = 0.01  # independent of the samples

Kind = tuple[str, str, str, int]  # dataset, network, its settings, samples in a round


def run_kind(experiment: Experiment) -> Kind:
    """Runs of the same kind need about the same time for a round."""
    make = experiment.model.make
    clients = experiment.clients
    steps = clients.local_steps if isinstance(clients.local_steps, int) else 5
    samples = (clients.per_round or clients.total) * steps * clients.batch_size
    network = getattr(make, "__name__", type(make).__name__)
    return str(experiment.dataset), network, str(experiment.model.settings), samples


def estimate_round_seconds(experiment: Experiment) -> float:
    """Seconds for a round on one core, without earlier runs of the kind; too many for networks of a smaller width."""
    _, network, _, samples = run_kind(experiment)
    per_1000 = SECONDS_PER_1000_SAMPLES.get(network, DEFAULT_SECONDS_PER_1000_SAMPLES)
    return SECONDS_PER_ROUND + per_1000 * samples / 1000


class RunTimes:
    """Seconds for a round by kind of run: measured where runs exist, else estimated."""

    def __init__(self, planned: Sequence[PlannedRun]) -> None:
        self._measured: dict[Kind, list[float]] = {}
        for p in planned:
            if (p.folder / SPEC).is_file():
                self.add_run(p.experiment, load_run(p.folder))

    def add_run(self, experiment: Experiment, run: Run) -> None:
        seconds = [line["seconds"] for line in run.timing if "seconds" in line]
        if len(seconds) >= 5:
            self._measured.setdefault(run_kind(experiment), []).append(sum(seconds) / len(seconds))

    def per_round(self, experiment: Experiment) -> float:
        measured = self._measured.get(run_kind(experiment))
        return median(measured) if measured else estimate_round_seconds(experiment)

    def remaining(self, planned: Iterable[PlannedRun]) -> float:
        """Seconds on one core for the unfinished rounds, if no run stops early."""
        return sum(remaining_rounds(p) * self.per_round(p.experiment) for p in planned)


def remaining_rounds(planned: PlannedRun) -> int:
    """The rounds a run may still need."""
    rounds = planned.experiment.rounds
    if not (planned.folder / SPEC).is_file():
        return rounds
    run = load_run(planned.folder)
    return 0 if run.finished else max(0, rounds - len(run.metrics))


def format_duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
