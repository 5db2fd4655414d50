"""How long runs take: from runs of the same kind that are there, else from the size of the work.

An estimate, to plan an evening by. A round trains S x U x B samples on d parameters; how long that takes for a sample
and a parameter is measured on whatever was run before on this machine, and was measured once for where nothing was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from dragfl.config.spec import Experiment
from dragfl.runs.directory import SPEC, Run, load_run
from dragfl.runs.sweep import PlannedRun

# On one core of an Intel Xeon server: seconds for a thousand samples in a round; and what a round costs besides.
SECONDS = {"mlp": 0.035, "cnn": 1.5, "logistic": 0.005}
BESIDES = 0.01
UNKNOWN = 0.5

Kind = tuple[str, str, int, int]  # dataset, network, its width, samples in a round


def kind(experiment: Experiment) -> Kind:
    """Runs of a kind take about as long for a round."""
    make = experiment.model.make
    width = next((v for k, v in experiment.model.settings.items() if k in ("hidden", "channels")), 0)
    return str(experiment.dataset), getattr(make, "__name__", type(make).__name__), int(width), _samples(experiment)


def _samples(experiment: Experiment) -> int:
    clients = experiment.clients
    steps = clients.local_steps if isinstance(clients.local_steps, int) else 5
    return (clients.per_round or clients.total) * steps * clients.batch_size


def guess(experiment: Experiment) -> float:
    """Seconds for a round on one core, where nothing of the kind has been run."""
    _, model, *_ = kind(experiment)
    settings = experiment.model.settings
    share = 1.0
    if model == "mlp":
        share = settings.get("hidden", 500) / 500
    elif model == "cnn":
        share = settings.get("channels", 64) / 64
    return BESIDES + SECONDS.get(model, UNKNOWN) * share * _samples(experiment) / 1000


class Rates:
    """Seconds a round by kind of run; what was measured goes before what is guessed."""

    def __init__(self, planned: Sequence[PlannedRun]) -> None:
        self._seen: dict[Kind, list[float]] = {}
        for p in planned:
            if (p.folder / SPEC).is_file():
                self.learn(p.experiment, load_run(p.folder))

    def learn(self, experiment: Experiment, run: Run) -> None:
        seconds = [line["seconds"] for line in run.timing if "seconds" in line]
        if len(seconds) >= 5:
            self._seen.setdefault(kind(experiment), []).append(sum(seconds) / len(seconds))

    def per_round(self, experiment: Experiment) -> float:
        seen = self._seen.get(kind(experiment))
        return median(seen) if seen else guess(experiment)

    def left(self, planned: Iterable[PlannedRun]) -> float:
        """Seconds on one core for what is not done yet, if every run goes to its last round."""
        return sum(rounds_left(p.folder, p.experiment.rounds) * self.per_round(p.experiment) for p in planned)


def rounds_left(folder: Path, rounds: int) -> int:
    """The rounds a run may still need."""
    if not (folder / SPEC).is_file():
        return rounds
    run = load_run(folder)
    return 0 if run.finished else max(0, rounds - len(run.metrics))


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
