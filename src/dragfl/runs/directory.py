"""The files of a run directory, and a reader for them. Imports neither torch nor the engine, so reports start fast.

| file | content |
|---|---|
| spec.toml | the resolved experiment; `dragfl run` on it repeats the run |
| run.json | versions, git commit, seed, machine, fingerprints of data, initial weights, model and code; checksums |
| metrics.jsonl | one line per round; no value depends on the clock |
| clients.jsonl | one line per round: a list for each telemetry value, with an entry for each sampled client |
| timing.jsonl | one line per round: seconds and memory |
| checkpoint.json, checkpoint-*.safetensors | the state to resume from |
| result.json | the summary; it exists if and only if the run has finished |
| model.safetensors | the final model, by parameter name |
| client_states.bin | client states that do not fit in memory |
| nodes.json | on Flower: the node of each client |
| flower/ | on Flower, on one machine: logs of its processes, states of its nodes |
| tracker.json, tensorboard/, wandb/ | the trackers of the run, with `--log` |
| theory.json, theory*.png, theory*.pdf | whether Theorem 1 covers the run, by `dragfl theory` |
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.config.compare import comparable
from dragfl.config.convert import check_text
from dragfl.config.migrate import rename_keys
from dragfl.config.tables import TARGET_METRICS
from dragfl.errors import DamagedRun, Diverged, SpecError
from dragfl.lazy import Tensor
from dragfl.runs.digests import MISMATCH, bytes_digest, file_digest, is_intact, table_digest

if TYPE_CHECKING:
    import pandas as pd

SPEC, INFO, RESULT = "spec.toml", "run.json", "result.json"
METRICS, CLIENTS, TIMING = "metrics.jsonl", "clients.jsonl", "timing.jsonl"
LOGS = (METRICS, CLIENTS, TIMING)
TUNING, FINAL, TUNING_TABLE = "tuning", "final", "tuning.json"  # of a tuned sweep: folders of runs, and the scores
CHECKPOINT, MODEL, LOCK = "checkpoint.json", "model.safetensors", "lock"
NODES, FLOWER = "nodes.json", "flower"
THEORY = "theory.json"
THEORY_FILES = (THEORY, *(f"theory{part}.{kind}" for part in ("", "-bound") for kind in ("png", "pdf")))
MISSING = "the file is missing"


@dataclass(frozen=True)
class Run:
    """A run directory `path`; each file is read on first access. Made by `dragfl.load_run(path)`."""

    path: Path

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The resolved experiment as plain tables; keys of version 0.1 have their new names."""
        self._check_not_replaced()
        try:
            tables = tomllib.loads((self.path / SPEC).read_text())
            check_text(tables)
            return rename_keys(tables)
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, SpecError) as error:
            raise _damaged(self.path / SPEC, error) from None

    @property
    def result_settings(self) -> dict[str, Any]:
        """The part of the spec that decides the result."""
        return comparable(self.spec)

    @cached_property
    def info(self) -> dict[str, Any]:
        """Versions, git commit, seed, machine, fingerprints."""
        self._check_not_replaced()
        table = _read_json(self.path / INFO)
        if not is_intact(table):
            raise _damaged(self.path / INFO, MISMATCH)
        return table

    def check_spec(self) -> None:
        """Raise `DamagedRun` if the settings in the spec that decide the result are not those of the start."""
        expected = self.info.get("settings") if self.info.get("dragfl") == version("dragfl") else None  # keys change
        if expected is not None and settings_digest(self.spec) != expected:
            raise _damaged(self.path / SPEC, f"{MISMATCH}: its settings are not those of the start of the run")

    def check_files(self) -> None:
        """Raise `DamagedRun` if a file of a finished run is missing or does not have the checksum in its run.json."""
        self.check_spec()
        for name, digest in self._checksums().items():
            if not (self.path / name).is_file():
                if name != MODEL:  # resume restores the model
                    raise _damaged(self.path / name, MISSING)
            elif file_digest(self.path / name) != digest:
                raise self._damaged_model(MISMATCH) if name == MODEL else _damaged(self.path / name, MISMATCH)

    def _checksums(self) -> dict[str, str]:
        """The checksum of each file of a finished run; empty for an unfinished one, and one of an earlier version."""
        if not self.finished or not (self.path / INFO).is_file():
            return {}
        files = Run(self.path).info.get("files")  # read again: the run may have finished since
        return files if isinstance(files, dict) else {}

    def _damaged_model(self, error: object) -> DamagedRun:
        return DamagedRun(f"{self.path / MODEL}: cannot be read ({error}); delete it, then: dragfl resume {self.path}")

    def _check_not_replaced(self) -> None:
        """Raise if the directory was started over since its first file was read: the numbers would be of two runs."""
        try:
            now = json.loads((self.path / INFO).read_text()).get("id")
        except (OSError, ValueError, AttributeError):  # reading `info` reports it
            return
        if self.__dict__.setdefault("_id", now) != now:
            raise DamagedRun(
                f"{self.path}: was started over since this Run was loaded; load it again with dragfl.load_run, or give "
                "each run a folder of its own"
            )

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict per round; `accuracy` and `loss` only where the round was evaluated."""
        self._check_not_replaced()
        return self._read_log(METRICS)

    @cached_property
    def clients(self) -> list[dict[str, Any]]:
        """One dict per round of equally long lists: `client`, `attacker`, `dropped`, `norm`, `cosine`, ..."""
        self._check_not_replaced()
        return self._read_log(CLIENTS)

    @cached_property
    def timing(self) -> list[dict[str, Any]]:
        self._check_not_replaced()
        return self._read_log(TIMING)

    @cached_property
    def nodes(self) -> dict[int, dict[str, Any]]:
        """On Flower, the node of each client: `name`, `node` (its id), `key` (SHA-256 of its public key) and more."""
        self._check_not_replaced()
        if not (self.path / NODES).is_file():
            if NODES in self._checksums():
                raise _damaged(self.path / NODES, MISSING)
            return {}
        table = _read_json(self.path / NODES)
        try:
            if not is_intact(table):
                raise ValueError(MISMATCH)
            check_text(table["nodes"])
            return {int(row["client"]): {**row, "name": str(row["name"])} for row in table["nodes"]}
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(self.path / NODES, error) from None

    @cached_property
    def theory(self) -> dict[str, Any] | None:
        """What `dragfl theory` has found for this run, else None."""
        return _read_json(self.path / THEORY) if (self.path / THEORY).is_file() else None

    @property
    def finished(self) -> bool:
        return (self.path / RESULT).is_file()

    @property
    def begun(self) -> bool:
        """Whether there are rounds that a resumed run would keep."""
        return self.finished or (self.path / CHECKPOINT).is_file()

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to do: the run has diverged, or it has finished and its model is there."""
        return self.finished and (self.diverged or (self.path / MODEL).is_file())

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The summary of a finished run, else None."""
        self._check_not_replaced()
        if not self.finished:
            return None
        if (expected := self._checksums().get(RESULT)) is not None and file_digest(self.path / RESULT) != expected:
            raise _damaged(self.path / RESULT, MISMATCH)
        return _read_json(self.path / RESULT)

    @property
    def name(self) -> str:
        return str(self.spec.get("name", self.path.name))

    @property
    def diverged(self) -> bool:
        """Whether the run ended because the model diverged."""
        return self.result is not None and self.result.get("stopped_by") == "diverged"

    @property
    def diverged_at(self) -> int | None:
        """The round in which the model diverged, or None."""
        return len(self.metrics) + 1 if self.diverged else None

    @property
    def chance(self) -> float:
        """The accuracy of guessing, at which a diverged run is judged; 0 for runs of version 0.1."""
        return 1.0 / self.info["classes"] if "classes" in self.info else 0.0

    @property
    def accuracy(self) -> list[tuple[int, float]]:
        """(round, test accuracy) of every evaluated round."""
        return self.values("accuracy")

    def values(self, name: str) -> list[tuple[int, float]]:
        """(round, value) of a metric, such as `own_accuracy` or `validation_loss`, in the rounds that have it.

        A value that is not finite is logged by its name, such as "inf", and is a float here.
        """
        try:
            return [(m["round"], float(m[name])) for m in self.metrics if m.get(name) is not None]
        except (TypeError, ValueError):
            raise SpecError(f"metric {name}: not one number for each round; read it from `run.metrics`") from None

    @property
    def target_on(self) -> str:
        """The data that targets refer to: "test" or "validation"."""
        return str(self.spec.get("evaluation", {}).get("target_on", "test"))

    def rounds_to(self, target: float) -> int | None:
        """The first evaluated round with at least this accuracy on the data of `target_on`, or None."""
        return next((t for t, value in self.values(TARGET_METRICS[self.target_on]) if value >= target), None)

    def model(self) -> dict[str, Tensor]:
        """The final model as a state dict: `module.load_state_dict(run.model())`."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        self._check_not_replaced()
        if not (self.path / MODEL).is_file():
            if self.result is not None and self.diverged:
                raise Diverged(f"{self.path}: there is no final model, the run {self.result['message']}")
            reason = MISSING if self.finished else "the run has not finished"
            raise DamagedRun(f"{self.path}: no {MODEL}; {reason}: dragfl resume {self.path}")
        try:
            if (expected := self._checksums().get(MODEL)) is not None and file_digest(self.path / MODEL) != expected:
                raise self._damaged_model(MISMATCH)
            return load_file(self.path / MODEL)
        except (SafetensorError, OSError) as error:
            raise self._damaged_model(error) from None

    def _read_log(self, name: str) -> list[dict[str, Any]]:
        """The lines of a log. Those of a finished run, and those up to the checkpoint, are compared with a checksum."""
        self._check_not_replaced()
        try:
            length, digest = self._log_end(name)
            content = (self.path / name).read_bytes() if (self.path / name).exists() else b""
            if digest is not None and bytes_digest(content[:length]) != digest:
                if (length, digest) == self._log_end(name):  # else the run has gone on, or has started over
                    raise _damaged(self.path / name, MISMATCH)
                return self._read_log(name)
            return _read_lines(content.decode())
        except (OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError
            raise _damaged(self.path / name, error) from None

    def _log_end(self, name: str) -> tuple[int | None, str | None]:
        """(number of bytes, their checksum) of the part of a log that has a checksum; None is all of it, and none."""
        if self.finished:
            return None, self._checksums().get(name)
        try:
            table = json.loads((self.path / CHECKPOINT).read_text())
            return (int(table["lengths"][name]), table["digests"][name]) if is_intact(table) else (None, None)
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or an older or damaged one: resume reports it
            return None, None

    def to_pandas(self) -> pd.DataFrame:
        """The metrics as a data frame, one row per round."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise ModuleNotFoundError("to_pandas() needs pandas: pip install pandas") from None
        return pd.DataFrame(self.metrics or {"round": []}).set_index("round")


def load_run(path: str | Path) -> Run:
    """Open the run directory `path`; `DamagedRun` if it is not one."""
    run = find_run(Path(path))
    if run is None:
        raise DamagedRun(f"{path}: not a run directory (no {SPEC} in it); give a folder written by `dragfl run`")
    return run


def find_run(path: Path) -> Run | None:
    """The run in this folder, or None if there is none yet."""
    return Run(path) if (path / SPEC).is_file() else None


def settings_digest(spec: Mapping[str, Any]) -> str:
    """The checksum of the settings of a resolved spec that decide the result."""
    return table_digest(comparable(spec))


def _damaged(path: Path, error: object) -> DamagedRun:
    return DamagedRun(f"{path}: cannot be read ({error}); the run is damaged: restore the file or run again")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    if not isinstance(value, dict):
        raise _damaged(path, ValueError(f"expected a table, got {type(value).__name__}"))
    return value


def _read_lines(text: str) -> list[dict[str, Any]]:
    """Every complete line. An incomplete last line (the run was killed, or is still writing) is left out."""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
