"""Whether a run directory holds the run of an experiment: same settings, data, initial weights, model and code."""

from __future__ import annotations

import warnings
from pathlib import Path

from dragfl import atomic
from dragfl.config.compare import differing_settings
from dragfl.config.spec import Experiment
from dragfl.engine.client_store import STATE_FILE
from dragfl.errors import DragflWarning, SpecError
from dragfl.runs import trackers
from dragfl.runs.directory import CHECKPOINT, INFO, LOGS, MODEL, NODES, RESULT, SPEC, THEORY_FILES, Run
from dragfl.runs.environment import describe_environment
from dragfl.runs.fingerprints import Fingerprint, changes, doubts
from dragfl.runs.lock import lock_folder
from dragfl.runs.trackers import tensorboard

START_OVER = "choose another folder (--out), or start over with --fresh (in Python: fresh=True)"
SHOWN = 3  # differing settings in a message


def check_same_experiment(experiment: Experiment, existing: Run) -> None:
    """Raise `SpecError` if the run directory has other settings."""
    differing = differing_settings(experiment.tables(), existing.spec)
    if differing:
        texts = [f"{key} is {_text(mine)}, there {_text(theirs)}" for key, (mine, theirs) in differing.items()]
        more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
        raise SpecError(
            f"{existing.path}: holds a run of another experiment: {'; '.join(texts[:SHOWN])}{more}; {START_OVER}"
        )


def check_fingerprint(now: Fingerprint, existing: Run) -> None:
    """Raise `SpecError` if the run had other data, weights or code; one without a checkpoint keeps nothing of them."""
    if existing.begun and (found := changes(existing.info, now)):
        raise SpecError(f"{existing.path}: its settings are the same, but not {', '.join(found)}; {START_OVER}")


def warn_of_doubts(runs: list[Run]) -> None:
    """Warn once for each reason why finished runs may not repeat."""
    reasons: dict[str, list[Run]] = {}
    for run in runs:
        for reason in doubts(run.info):
            reasons.setdefault(reason, []).append(run)
    for reason, found in reasons.items():
        others = f" and {len(found) - 1} more runs" if len(found) > 1 else ""
        warnings.warn(f"{found[0].path}{others}: {reason}", DragflWarning, stacklevel=3)


def start_over(experiment: Experiment, folder: Path) -> None:
    """Replace the run in a folder by one that has not begun: the same command without `fresh` continues it."""
    with lock_folder(folder):
        clear_run(folder)
        atomic.write_json(folder / INFO, describe_environment(experiment.seed))
        atomic.write_text(folder / SPEC, experiment.to_toml())


def clear_run(folder: Path) -> None:
    """Delete what a run has written, but for spec.toml and run.json, which a new run replaces; nothing else.

    The order keeps every state in between resumable: first the result, then the checkpoint.
    """
    tensors = folder.glob("checkpoint-*.safetensors")
    events = (folder / tensorboard.FOLDER).glob("events.out.tfevents.*")
    names = (RESULT, CHECKPOINT, *LOGS, MODEL, STATE_FILE, NODES, *THEORY_FILES, trackers.FILE)
    for path in [*(folder / name for name in names), *sorted(tensors), *sorted(events)]:
        path.unlink(missing_ok=True)


def _text(value: object) -> str:
    return "not set" if value is None else repr(value)
