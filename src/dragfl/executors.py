"""Run and resume an experiment where `engine.executor` says: in this process, on a Ray cluster, or on Flower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dragfl.config.spec import Experiment, as_experiment
from dragfl.runs.directory import Run, load_run
from dragfl.runs.numbering import default_folder
from dragfl.runs.trackers import Names
from dragfl.types import OnRecord


def run(
    experiment: Experiment | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    fresh: bool = False,
    on_record: OnRecord = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    log: Names = (),
) -> Run:
    """Run an experiment into a new directory. A finished run is returned, not repeated.

    The default is runs/NAME; an experiment without a name is numbered: runs/run-1, runs/run-2 and so on.

    It is an error if the run there had other settings, data, initial weights, model or code.

    Parameters
    ----------
    experiment
        What `load` returns, or what it takes: a TOML file or tables.
    out
        The run directory.
    fresh
        Start over: replace the run in the directory, whatever it is.
    on_record
        Called with the `RoundRecord` of every round.
    should_stop
        Called after every round; True writes a checkpoint and raises `Interrupted`.
    log
        Trackers that get every round: "tensorboard", "mlflow", "wandb", or several of them.
    """
    experiment = as_experiment(experiment)
    experiment, folder = default_folder(experiment) if out is None else (experiment, Path(out))
    if experiment.engine.executor == "flower":
        from dragfl.flower.local import run_local

        return run_local(experiment, folder, fresh=fresh, on_record=on_record, should_stop=should_stop, log=log)
    from dragfl.runs import loop

    return loop.run(experiment, folder, fresh=fresh, on_record=on_record, should_stop=should_stop, log=log)


def resume(
    path: str | Path,
    experiment: Experiment | None = None,
    *,
    on_record: OnRecord = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    log: Names = (),
) -> Run:
    """Continue a run that was stopped or killed.

    It is an error if data, initial weights, model or code are others than at its start. For a finished run they are
    compared only if the experiment is given; if its model file is missing, it is restored from the last checkpoint.

    Parameters
    ----------
    path
        The run directory.
    experiment
        Needed only if the spec of the run holds Python objects.
    on_record
        Called with the `RoundRecord` of every round that is executed now.
    should_stop
        Called after every round; True writes a checkpoint and raises `Interrupted`.
    log
        Further trackers; those of the run are continued.
    """
    if load_run(path).spec.get("engine", {}).get("executor") == "flower":
        from dragfl.flower.local import resume_local

        return resume_local(path, experiment, on_record=on_record, should_stop=should_stop, log=log)
    from dragfl.runs import loop

    return loop.resume(path, experiment, on_record=on_record, should_stop=should_stop, log=log)
