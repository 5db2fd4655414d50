"""Whether Theorem 1 covers a spec, by how much not, what to change, and its bound next to the measurement."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dragfl.config.spec import Experiment, load
from dragfl.errors import SpecError
from dragfl.runs.directory import Run
from dragfl.schedules import Schedule
from dragfl.theory.assumptions import drag_of, outside_the_theorem
from dragfl.theory.constants import MODELS, Measurement, Progress, measure
from dragfl.theory.theorem import PRINTED, REPAIRED, Bound, Setting, bound, floor, gamma, largest_c, largest_lr

LIMIT = 1 / 33  # of c, for any learning rate
TRIED = (0.0, 0.01, 0.02)  # values of c whose largest learning rate is printed
PAPER = (
    "The paper's own settings, c = 0.1 (CIFAR-10) and c = 0.25 (EMNIST), lie outside its theorem, which needs "
    "c < 1/33 = 0.0303 for any learning rate."
)


@dataclass(frozen=True)
class Assessment:
    """A spec, the constants measured on it, and what the theorem says; made by `assess`."""

    name: str  # of the experiment
    rounds: int  # of the experiment, or completed by the run
    setting: Setting  # of a schedule its largest value
    outside: tuple[str, ...]  # settings for which the theorem is not stated
    measurement: Measurement  # on the data and model of the spec

    @property
    def x(self) -> float:
        """eta L U, from the measured L."""
        return self.setting.lr * self.measurement.constants.smoothness * self.setting.local_steps

    @property
    def feasible(self) -> bool:
        """Whether Gamma > 0 with the measured L."""
        return largest_c(self.x) is not None and gamma(self.setting.c, self.x) > 0

    @property
    def covered(self) -> bool:
        """Whether the theorem covers the run, as far as the constants were measured."""
        return self.feasible and not self.outside and self.x > 0

    def bound(self, rounds: int) -> Bound | None:
        """The bound after so many rounds; None where the theorem does not cover the run."""
        return bound(self.setting, self.measurement.constants, rounds) if self.covered else None

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.covered:
            return "covered, as far as L was measured: a larger L at another model can end it"
        if self.outside and self.feasible:
            return "c and the learning rate are small enough, but the theorem is not stated for this run"
        if self.setting.c >= LIMIT:
            return "not covered, whatever L is: no learning rate is small enough for this c"
        return "not covered with the measured L; Gamma falls as L grows"

    @property
    def conditions(self) -> list[tuple[str, str, str, str]]:
        """(condition, value here, value needed, what follows) of every condition on c and the learning rate."""
        c, lr, most_c, most_lr = self.setting.c, self.setting.lr, largest_c(self.x), self._largest_lr
        needed_lr = f"< {most_lr:.3g}" if most_lr else "none is small enough"
        return [
            ("c, for any learning rate", f"{c:g}", "< 1/33 = 0.0303", _compare(c, LIMIT)),
            ("c, at this learning rate", f"{c:g}", f"< {most_c:.3g}" if most_c else "none", _compare(c, most_c)),
            ("clients.lr, at this c", f"{lr:g}", needed_lr, _compare(lr, most_lr)),
            ("x = eta L U", f"{self.x:.3g}", "<= 0.125", _compare(self.x, 1 / 8)),
            *(
                (f"Gamma, {name}", f"{value:.3g}", "> 0", "holds" if value > 0 else f"{-value:.3g} too small")
                for name, value in self.gammas.items()
            ),
        ]

    @property
    def gammas(self) -> dict[str, float]:
        return {
            name: gamma(self.setting.c, self.x, form) for name, form in (("printed", PRINTED), ("repaired", REPAIRED))
        }

    @property
    def _largest_lr(self) -> float | None:
        return self._lr_for(self.setting.c)

    def _lr_for(self, c: float) -> float | None:
        L = self.measurement.constants.smoothness
        return largest_lr(c, L, self.setting.local_steps) if L > 0 else None

    @property
    def changes(self) -> list[str]:
        """What to change so that the theorem covers the run."""
        found, c, most_lr, most_c = [], self.setting.c, self._largest_lr, largest_c(self.x)
        if not self.feasible:
            if most_lr is not None:
                found.append(
                    f"lower clients.lr from {self.setting.lr:g} to below {most_lr:.3g}, with c = {c:g} as it is"
                )
            if most_c is not None:
                found.append(f"lower c from {c:g} to below {most_c:.3g}, with clients.lr as it is")
            if not found:
                pairs = [f"c = {value:g} and clients.lr < {lr:.3g}" for value in TRIED if (lr := self._lr_for(value))]
                found.append(f"lower both c and clients.lr, for example {', or '.join(pairs)}")
        if self.setting.lr == 0:
            found.append("raise clients.lr above 0: nothing moves")
        return [*found, *(f"not in the theorem: {text}" for text in self.outside)]

    @property
    def notes(self) -> list[str]:
        """What the numbers are worth."""
        m = self.measurement
        found = [
            PAPER,
            f"Measured on {m.samples:,} samples of {m.clients} of {m.population} clients at {len(m.models)} models, L "
            f"on {len(m.models[0].smoothness)} of them. L, sigma_L and sigma_G are the largest values at these models: "
            "local estimates that other models can exceed, lower bounds up to the draw of samples, and no certificate "
            "(the gradient of a ReLU network is not even Lipschitz). f0 - f* uses f* >= 0.",
        ]
        if m.diverged:
            found.append(f"The run diverged after round {m.rounds}; the models up to there were measured.")
        return found

    def values(self) -> dict[str, Any]:
        """Everything as plain values: the content of theory.json."""
        constants, setting, here = self.measurement.constants, self.setting, self.bound(max(1, self.measurement.rounds))
        end = self.bound(self.rounds)
        return {
            "dragfl": version("dragfl"),
            "name": self.name,
            "rounds": self.rounds,
            "setting": asdict(setting),
            "x": self.x,
            "gamma": self.gammas,
            "covered": self.covered,
            "verdict": self.verdict,
            "conditions": [list(row) for row in self.conditions],
            "changes": self.changes,
            "notes": self.notes,
            "constants": asdict(constants),
            "spreads": {name: spread._asdict() for name, spread in self.measurement.spreads.items()},
            "measurement": self.measurement.values(),
            "bound_measured": asdict(here) | {"total": here.total} if here else None,
            "bound": asdict(end) | {"total": end.total} if end else None,
            "floor": floor(setting.c, constants, setting.local_steps, setting.batch_size),
        }


def _compare(value: float, limit: float | None) -> str:
    if limit is None:
        return "impossible"
    return "holds" if value < limit else f"{value / limit:.3g} times too large"


def assess(
    source: Experiment | Run | str | Path,
    *overrides: str,
    rounds: int | None = None,
    models: int = MODELS,
    progress: Progress = lambda done, of: None,
) -> Assessment:
    """Measure the constants of a spec or of a finished run, and judge it by Theorem 1.

    Parameters
    ----------
    source
        An experiment, a TOML file, or a finished run.
    *overrides
        Changes to a TOML file, such as "algorithm.c=0.01".
    rounds
        Rounds to repeat for the measurement; default: as many as take about ten seconds.
    models
        Models that are measured in these rounds.
    progress
        Called with the steps done and their number.
    """
    run = source if isinstance(source, Run) else None
    if isinstance(source, Run):
        experiment = experiment_of(source)
    else:
        experiment = load(source, *overrides) if isinstance(source, str | Path) else source
    c, lr = drag_of(experiment).c, experiment.clients.lr
    outside = outside_the_theorem(experiment)
    measurement = measure(experiment, run, rounds, models, progress)
    setting = Setting(_largest(c), _largest(lr), measurement.local_steps, experiment.clients.batch_size)
    planned = len(run.metrics) if run is not None else experiment.rounds
    return Assessment(experiment.name, planned, setting, outside, measurement)


def experiment_of(run: Run) -> Experiment:
    """The experiment of a finished run."""
    if not run.finished:
        raise SpecError(
            f"{run.path}: the run has not finished ({len(run.metrics)} of {run.spec.get('rounds')} rounds); "
            f"finish it with: dragfl resume {run.path}"
        )
    return load(run.spec)


def _largest(value: float | Schedule) -> float:
    return value.bounds[1] if isinstance(value, Schedule) else float(value)
