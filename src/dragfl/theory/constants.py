"""The constants of Theorem 1, measured at several models of a run: L, sigma_L, sigma_G and f0 - f*.

The run is repeated in this process, from its spec and with its draws, for as many rounds as asked for. Assumptions 1
and 2 are about every model; these are values at some, on a subsample. So L, sigma_L and sigma_G are lower bounds up to
the draw of samples, and certify nothing. For f* the bound 0 of the cross-entropy is used: f0 - f* is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragfl.build import build_federation, client_work
from dragfl.config.spec import Experiment
from dragfl.engine.round import run_round
from dragfl.engine.simulator import Worker
from dragfl.engine.state import Federation, FederationState
from dragfl.engine.threads import one_thread, own_generator
from dragfl.errors import Diverged, SpecError
from dragfl.rng import torch_rng
from dragfl.runs.directory import Run
from dragfl.theory.curvature import Parts, hessian_product, largest_curvature
from dragfl.theory.gradients import GradientEstimates, Subsample, draw_subsample, estimate_gradients, samples
from dragfl.theory.theorem import Constants
from dragfl.training.loop import Loop

MODELS = 5  # of the repeated rounds
CURVATURE_CLIENTS = 8  # whose Hessians are measured
REPLAY_WORK = 7e10  # (parameters x samples) of the repeated rounds: about ten seconds on one core of 2025

Progress = Callable[[int, int], None]  # (steps done, of)


@dataclass(frozen=True)
class ModelEstimates(GradientEstimates):
    """The estimates at the model after `round` rounds."""

    round: int
    smoothness: tuple[float, ...]  # of some of the clients

    @property
    def finite(self) -> bool:
        """Whether every estimate is finite; those of a diverging model may not be."""
        values = (self.loss, self.squared_gradient, *self.noise, *self.heterogeneity, *self.smoothness)
        return all(map(math.isfinite, values))


class Spread(NamedTuple):
    """A constant over clients and models."""

    least: float
    median: float
    most: float


@dataclass(frozen=True)
class Measurement:
    """What was measured, on which samples, and the constants that follow."""

    models: tuple[ModelEstimates, ...]  # the estimates at each model
    rounds: int  # repeated
    diverged: bool  # whether the run diverged before they were over, or nothing finite could be measured
    local_steps: int  # U, the most that a client makes
    clients: int  # measured
    population: int  # clients with data
    samples: int  # of all measured clients

    @property
    def constants(self) -> Constants:
        """The largest value over clients and models; f0 at the first model."""
        most = {name: spread.most for name, spread in self.spreads.items()}
        return Constants(most["smoothness"], most["noise"], most["heterogeneity"], self.models[0].loss)

    @property
    def spreads(self) -> dict[str, Spread]:
        """L, sigma_L and sigma_G over clients and models."""
        found = {}
        for name in ("smoothness", "noise", "heterogeneity"):
            values = [value for model in self.models for value in getattr(model, name)]
            found[name] = Spread(min(values), float(np.median(values)), max(values))
        return found

    @property
    def mean_squared_gradient(self) -> float:
        """1/T sum_(t<T) |grad f|^2 over the repeated rounds, by the trapezoidal rule between the measured models."""
        along = [(m.round, m.squared_gradient) for m in self.models if m.round <= self.rounds]
        if len(along) == 1:
            return along[0][1]
        t, value = np.array(along).T
        return float(np.trapezoid(value, t) / (t[-1] - t[0]))

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"mean_squared_gradient": self.mean_squared_gradient, "constants": asdict(self.constants)}


def measure(
    experiment: Experiment,
    run: Run | None = None,
    rounds: int | None = None,
    models: int = MODELS,
    progress: Progress = lambda done, of: None,
) -> Measurement:
    """Repeat the first rounds of an experiment and measure the constants at evenly spaced models.

    Parameters
    ----------
    experiment
        What `load` returns.
    run
        Its finished run: the final model is measured too.
    rounds
        Rounds to repeat; default: as many as take about ten seconds.
    models
        Models that are measured in these rounds, the first and the last included.
    progress
        Called with the steps done and their number.
    """
    if experiment.flower.data == "own":
        raise SpecError("flower.data: 'own'; the data of the clients are not here, so nothing can be measured")
    here = replace(experiment.engine, workers=1, executor="local")
    _, federation = build_federation(replace(experiment, engine=here))
    worker = federation.worker
    work = client_work(worker) * worker.info.per_round
    planned = experiment.rounds if run is None else len(run.metrics)
    count = min(planned, max(1, int(REPLAY_WORK / work)) if rounds is None else rounds)
    at = sorted(set(np.linspace(0, count, min(models, count + 1)).round().astype(int).tolist()))
    final = _final_model(federation, run) if run is not None and not run.diverged and count < planned else None
    subsample = draw_subsample(worker.split, worker.info.dim, experiment.seed)
    curved = min(CURVATURE_CLIENTS, len(subsample.clients))
    of = count + (len(at) + (final is not None)) * (len(subsample.clients) + curved)
    done = iter(range(1, of + 1))
    meter = Meter(worker, subsample, curved, lambda: progress(next(done, of), of), {})
    found: list[ModelEstimates] = []
    last = 0
    for state in _replay(federation, count, meter.on_step):
        if state.t in at:
            estimates = meter.measure(state.w, state.buffers, state.t)
            if found and not estimates.finite:
                break
            found.append(estimates)
        last = state.t
    diverged = last < count
    if final is not None:
        found.append(meter.measure(*final))
    sizes = worker.split.sizes
    return Measurement(
        tuple(found),
        last,
        diverged,
        worker.local.work.most_steps(int(sizes.max())),
        len(subsample.clients),
        subsample.population,
        subsample.samples,
    )


def _replay(federation: Federation, rounds: int, on_round: Callable[[], None]) -> Iterator[FederationState]:
    """The state before the first round and after each; ends early where the run diverges."""
    state = federation.start()
    yield state
    for _ in range(rounds):
        try:
            with one_thread(), own_generator():
                state, _ = run_round(federation, state)
        except Diverged:
            return
        on_round()
        yield state


def _final_model(federation: Federation, run: Run) -> tuple[Tensor, Tensor | None, int]:
    """(model, buffers, rounds) at the end of a finished run."""
    model = federation.model
    model.module.load_state_dict(run.model())
    return model.w.clone(), model.b.clone() if len(model.b) else None, len(run.metrics)


@dataclass(frozen=True)
class Meter:
    """Measures models on one subsample; power iterations start from the directions found at the model before."""

    worker: Worker
    subsample: Subsample
    curved: int  # clients whose Hessians are measured: the first ones
    on_step: Callable[[], None]
    directions: dict[int, Parts]

    def measure(self, w: Tensor, buffers: Tensor | None, t: int) -> ModelEstimates:
        """The estimates at one model, in evaluation mode: without drop-out, with the averaged buffers."""
        loop = self.worker.local.loop
        loop.model.module.eval()
        loop.model.load(w, buffers)
        gradients = estimate_gradients(loop, self.subsample, self.on_step)
        smoothness = tuple(self._curvature(loop, i) for i in range(self.curved))
        return ModelEstimates(**vars(gradients), round=t, smoothness=smoothness)

    def _curvature(self, loop: Loop, i: int) -> float:
        """A lower bound of the spectral norm of the Hessian of the i-th client's loss on its samples."""
        loss, _ = loop.loss(*samples(loop, self.subsample.rows(i)))
        start = self.directions.get(i) or self._random_direction(loop, i)
        found, self.directions[i] = largest_curvature(hessian_product(loss, loop.model.parameters), start)
        self.on_step()
        return found

    def _random_direction(self, loop: Loop, i: int) -> Parts:
        draws = torch_rng(self.worker.info.dim, "theory direction", i)
        vector = torch.randn(loop.model.dim, generator=draws).to(loop.model.w.device)
        return loop.model.views(vector)
