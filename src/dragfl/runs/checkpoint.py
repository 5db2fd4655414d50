"""Save and restore the state of a run: tensors as safetensors, numbers as JSON, never a pickle.

`checkpoint.json` is the commit point. It holds the name and digest of its tensor file, the byte length and digest of
each log, and a digest of itself. Log lines written after it are cut off on resume.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, isfinite

from dragfl import atomic
from dragfl.engine.state import Federation, FederationState
from dragfl.errors import DamagedRun
from dragfl.runs.digests import MISMATCH, SELF, LogEnd, file_digest, is_intact, with_digest
from dragfl.runs.directory import CHECKPOINT, LOGS

FORMAT = 1
PARTS = ("correction", "aggregate", "server", "attack", "iterate")
VECTORS = ("buffers", "own")  # of the federation's state, where it has them
CLIENT_STATE = "clients."  # prefix of the client store's tensors


def save_checkpoint(folder: Path, federation: Federation, state: FederationState, logs: Mapping[str, LogEnd]) -> None:
    """Write a checkpoint of `state`. The previous one stays valid until this one is durable."""
    tensors, numbers = flatten_state(state)
    tensors |= {f"{CLIENT_STATE}{name}": value for name, value in federation.store.tensors().items()}
    name = f"checkpoint-{state.t:08d}.safetensors"
    atomic.write_tensors(folder / name, _without_shared_memory(tensors))
    table: dict[str, Any] = {
        "format": FORMAT,
        "round": state.t,
        "tensors": name,
        "blake2b": file_digest(folder / name),
        "lengths": {log: end.length for log, end in logs.items()},
        "digests": {log: end.digest for log, end in logs.items()},
        "numbers": numbers,
    }
    atomic.write_json(folder / CHECKPOINT, with_digest(table))
    federation.store.checkpointed()
    for old in folder.glob("checkpoint-*.safetensors"):
        if old.name != name:
            old.unlink()


def load_checkpoint(folder: Path, federation: Federation) -> tuple[FederationState, dict[str, LogEnd]]:
    """(state, ends of the logs) of the last checkpoint, or of the start if there is none yet."""
    if not (folder / CHECKPOINT).exists():
        return federation.start(), dict.fromkeys(LOGS, LogEnd())
    with _named_damage(folder):
        table = _read_table(folder)
        path = folder / Path(table["tensors"]).name
        if file_digest(path) != table["blake2b"]:
            raise ValueError(f"{MISMATCH} of {path.name}")
        tensors = load_file(path, device=str(federation.initial.device))
        state = restore_state(federation, int(table["round"]), tensors, table["numbers"])
        return state, _log_ends(table)


def checkpointed_logs(folder: Path) -> dict[str, LogEnd]:
    """The end of each log at the last checkpoint, or at the start if there is none yet."""
    if not (folder / CHECKPOINT).exists():
        return dict.fromkeys(LOGS, LogEnd())
    with _named_damage(folder):
        return _log_ends(_read_table(folder))


def _read_table(folder: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((folder / CHECKPOINT).read_text())
    if table["format"] != FORMAT:
        raise ValueError(f"format {table['format']!r}, this version of dragfl reads {FORMAT}")
    if SELF not in table or not is_intact(table):
        raise ValueError(MISMATCH)
    return table


def _log_ends(table: Mapping[str, Any]) -> dict[str, LogEnd]:
    digests = table.get("digests", {})
    return {name: LogEnd(int(table["lengths"][name]), digests.get(name)) for name in LOGS}


@contextmanager
def _named_damage(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedRun(
            f"{folder / CHECKPOINT}: cannot be used ({error}); the run is damaged: run it again with --fresh "
            "(in Python: fresh=True)"
        ) from None


def flatten_state(state: FederationState) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Every tensor and every number of the state, named `part.field`."""
    tensors, numbers = {"w": state.w}, {}
    tensors |= {name: vector for name in VECTORS if (vector := getattr(state, name)) is not None}
    for part in PARTS:
        value = getattr(state, part)
        for field in dataclasses.fields(value) if value is not None else ():
            entry = getattr(value, field.name)
            if isinstance(entry, Tensor):
                tensors[f"{part}.{field.name}"] = entry
            elif entry is not None:
                numbers[f"{part}.{field.name}"] = entry
    return tensors, numbers


def restore_state(
    federation: Federation, t: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]
) -> FederationState:
    """The inverse of `flatten_state`; client states go back to the federation's store."""
    start = federation.start()
    if tensors["w"].shape != start.w.shape or not isfinite(tensors["w"]).all():
        raise ValueError(f"its model has shape {tuple(tensors['w'].shape)} or is not finite")
    parts: dict[str, Any] = {}
    for part in PARTS:
        value = parts[part] = getattr(start, part)
        if value is not None:
            names = [field.name for field in dataclasses.fields(value)]
            stored = {n: tensors.get(f"{part}.{n}", numbers.get(f"{part}.{n}")) for n in names}
            parts[part] = dataclasses.replace(value, **stored)
    federation.store.restore(
        {k.removeprefix(CLIENT_STATE): v for k, v in tensors.items() if k.startswith(CLIENT_STATE)}
    )
    return FederationState(t, tensors["w"], **parts, **{name: tensors.get(name) for name in VECTORS})


def _without_shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors requires them: contiguous, none sharing memory with another."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        separate[name] = value.clone() if value.untyped_storage().data_ptr() in seen else value
        seen.add(separate[name].untyped_storage().data_ptr())
    return separate
