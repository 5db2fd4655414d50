"""Save and restore the whole state of a run: tensors as safetensors, the rest as JSON, never a pickle.

`checkpoint.json` is the commit point: it names its tensor file with its digest, and the byte length that each log had,
and holds a digest of itself.
Whatever came after, a torn line or whole rounds, is cut off by resume, so a killed run goes on as if nothing happened.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, isfinite

from dragfl import atomic as durable
from dragfl.build import Federation
from dragfl.engine.round import FederationState
from dragfl.errors import DamagedRun
from dragfl.runs.directory import CHECKPOINT, LOGS

FORMAT = 1
PARTS = ("correction", "aggregate", "server", "attack")


def save(folder: Path, fed: Federation, state: FederationState, lengths: Mapping[str, int]) -> None:
    """Write a checkpoint of `state`; the one before stays valid until this one is durable."""
    tensors, numbers = flatten(state)
    tensors |= {f"clients.{name}": value for name, value in fed.store.tensors().items()}
    name = f"checkpoint-{state.t:08d}.safetensors"
    separate = own_memory(tensors)
    durable.write(folder / name, lambda temporary: durable.save_tensors(separate, temporary))
    table: dict[str, Any] = {
        "format": FORMAT,
        "round": state.t,
        "tensors": name,
        "blake2b": digest(folder / name),
        "lengths": dict(lengths),
        "numbers": numbers,
    }
    durable.write_json(folder / CHECKPOINT, table | {"digest": own_digest(table)})
    fed.store.checkpointed()
    for old in folder.glob("checkpoint-*.safetensors"):
        if old.name != name:
            old.unlink()


def load(folder: Path, fed: Federation) -> tuple[FederationState, dict[str, int]] | None:
    """(state, log lengths) of the last checkpoint, or None if there is none yet."""
    if not (folder / CHECKPOINT).exists():
        return None
    try:
        table = json.loads((folder / CHECKPOINT).read_text())
        if table["format"] != FORMAT:
            raise ValueError(f"format {table['format']!r}, this version of dragfl reads {FORMAT}")
        if table.pop("digest") != own_digest(table):
            raise ValueError("it is not what was written")
        path = folder / Path(table["tensors"]).name
        if digest(path) != table["blake2b"]:
            raise ValueError(f"{path.name} is not the file that was written")
        tensors = load_file(path, device=str(fed.initial.device))
        state = restore(fed, int(table["round"]), tensors, table["numbers"])
        lengths = {name: int(table["lengths"][name]) for name in LOGS}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedRun(
            f"{folder / CHECKPOINT}: cannot be used ({error}); the run is damaged: delete {folder} and run again"
        ) from None
    return state, lengths


def own_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors wants them: contiguous, none in the memory of another."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        separate[name] = value.clone() if value.untyped_storage().data_ptr() in seen else value
        seen.add(separate[name].untyped_storage().data_ptr())
    return separate


def flatten(state: FederationState) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Every tensor and every number of the state, under `part.field`."""
    tensors, numbers = {"w": state.w}, {}
    if state.buffers is not None:
        tensors["buffers"] = state.buffers
    for part in PARTS:
        value = getattr(state, part)
        for field in dataclasses.fields(value) if value is not None else ():
            entry = getattr(value, field.name)
            if isinstance(entry, Tensor):
                tensors[f"{part}.{field.name}"] = entry
            elif entry is not None:
                numbers[f"{part}.{field.name}"] = entry
    return tensors, numbers


def restore(fed: Federation, t: int, tensors: dict[str, Tensor], numbers: Mapping[str, Any]) -> FederationState:
    """The state these tensors and numbers were flattened from."""
    start = fed.start()
    if tensors["w"].shape != start.w.shape or not isfinite(tensors["w"]).all():
        raise ValueError(f"its model has shape {tuple(tensors['w'].shape)} or is not finite")
    fields: dict[str, Any] = {}
    for part in PARTS:
        value = getattr(start, part)
        if value is not None:
            names = [f.name for f in dataclasses.fields(value)]
            found = {n: tensors.get(f"{part}.{n}", numbers.get(f"{part}.{n}")) for n in names}
            fields[part] = dataclasses.replace(value, **found)
        else:
            fields[part] = None
    prefix = "clients."
    fed.store.restore({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    return FederationState(t, tensors["w"], **fields, buffers=tensors.get("buffers"))


def own_digest(table: Mapping[str, Any]) -> str:
    """A digest of what the table says, however it is laid out."""
    return blake2b(json.dumps(table, sort_keys=True).encode(), digest_size=20).hexdigest()


def digest(path: Path) -> str:
    with path.open("rb") as file:
        hashed = blake2b(digest_size=20)
        while chunk := file.read(1 << 20):
            hashed.update(chunk)
    return hashed.hexdigest()
