"""A run directory: what is in it, and how to read it. Needs neither torch nor the engine, so that reports are quick.

| file | what |
|---|---|
| spec.toml | the resolved experiment; `dragfl run` on it repeats the run |
| run.json | versions, git commit, seed, machine |
| metrics.jsonl | one line a round; nothing in it depends on the clock |
| clients.jsonl | one line a round: a column a telemetry value, an entry a sampled client |
| timing.jsonl | seconds and memory, one line a round |
| checkpoint.json, checkpoint-*.safetensors | the state to resume from |
| result.json | the summary; it exists exactly when the run has finished |
| model.safetensors | the final model, by parameter name |
| clients.slab | what clients keep between rounds, where that is too large for memory |
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.errors import DamagedRun, Diverged

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

SPEC, INFO, RESULT = "spec.toml", "run.json", "result.json"
METRICS, CLIENTS, TIMING = "metrics.jsonl", "clients.jsonl", "timing.jsonl"
LOGS = (METRICS, CLIENTS, TIMING)
CHECKPOINT, MODEL, LOCK = "checkpoint.json", "model.safetensors", "lock"


@dataclass(frozen=True)
class Run:
    """A run directory, read when asked: `dragfl.load_run(path)`."""

    path: Path

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The resolved experiment as plain tables."""
        try:
            return tomllib.loads((self.path / SPEC).read_text())
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise _damaged(self.path, SPEC, error) from None

    @cached_property
    def info(self) -> dict[str, Any]:
        """Versions, git commit, seed, machine."""
        return _read_json(self.path, INFO)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict a round; `accuracy` and `loss` only where the round was evaluated."""
        return _read_lines(self.path, METRICS)

    @cached_property
    def clients(self) -> list[dict[str, Any]]:
        """One dict a round of equally long lists: `client`, `attacker`, `dropped`, `norm`, `cosine`, ..."""
        return _read_lines(self.path, CLIENTS)

    @cached_property
    def timing(self) -> list[dict[str, Any]]:
        return _read_lines(self.path, TIMING)

    @property
    def finished(self) -> bool:
        return (self.path / RESULT).is_file()

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The summary of a finished run, else None."""
        return _read_json(self.path, RESULT) if self.finished else None

    @property
    def name(self) -> str:
        return str(self.spec.get("name", self.path.name))

    @property
    def accuracy(self) -> list[tuple[int, float]]:
        """(round, test accuracy) of every evaluated round."""
        return [(m["round"], m["accuracy"]) for m in self.metrics if "accuracy" in m]

    def rounds_to(self, target: float) -> int | None:
        """The first evaluated round with at least this accuracy, or None."""
        return next((t for t, value in self.accuracy if value >= target), None)

    def model(self) -> dict[str, Tensor]:
        """The final model as a state dict: `module.load_state_dict(run.model())`."""
        from safetensors.torch import load_file

        if not (self.path / MODEL).is_file():
            if self.result is not None and self.result.get("stopped_by") == "diverged":
                raise Diverged(f"{self.path}: there is no final model, the run {self.result['message']}")
            raise DamagedRun(f"{self.path}: no {MODEL}; the run has not finished: dragfl resume {self.path}")
        return load_file(self.path / MODEL)

    def to_pandas(self) -> pd.DataFrame:
        """The metrics as a data frame, one row a round."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise ModuleNotFoundError("to_pandas() needs pandas: pip install pandas") from None
        return pd.DataFrame(self.metrics or {"round": []}).set_index("round")


def load_run(path: str | Path) -> Run:
    """Open a run directory; an error with exit code 6 if it is not one."""
    path = Path(path)
    if not (path / SPEC).is_file():
        raise DamagedRun(f"{path}: not a run directory (no {SPEC} in it); give a folder that `dragfl run` made")
    return Run(path)


def _damaged(path: Path, name: str, error: Exception) -> DamagedRun:
    return DamagedRun(f"{path / name}: cannot be read ({error}); the run is damaged: restore the file or run again")


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        value = json.loads((path / name).read_text())
    except (OSError, ValueError) as error:
        raise _damaged(path, name, error) from None
    if not isinstance(value, dict):
        raise _damaged(path, name, ValueError(f"a table was expected, found {type(value).__name__}"))
    return value


def _read_lines(path: Path, name: str) -> list[dict[str, Any]]:
    """Every whole line; a torn last line (the run was killed, or is being written) is left out."""
    try:
        text = (path / name).read_text()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, name, error) from None
    whole = text[: text.rfind("\n") + 1].splitlines()
    try:
        return [json.loads(line) for line in whole]
    except ValueError as error:
        raise _damaged(path, name, error) from None
