"""The actor that works on a Ray cluster, and values on their way there and back.

Tensors travel as numpy arrays, which Ray moves between machines and maps without copies. A reply is ("done", result) or
("failed", type, message, traceback).
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.allocator import keep_freed_memory
from dragfl.engine.backends.shared_memory import ALIGN
from dragfl.engine.backends.supervisor import describe_error
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.evaluation import Score
from dragfl.engine.simulator import Worker
from dragfl.types import Updates

Reply = tuple[Any, ...]


def machine_info() -> dict[str, str]:
    """What the last bits of a result depend on."""
    versions = {name: version(name) for name in ("dragfl", "torch", "numpy")}
    return versions | {"CPU": torch.backends.cpu.get_cpu_capability()}


class RayWorker:
    """Sets up the experiment once, and then answers one task after the other."""

    def __init__(self) -> None:
        self._worker: Worker
        self._call = 0
        self._shared: tuple[Any, ...] = ()  # what the tasks of a call have in common

    def prepare(self, settings: Mapping[str, Any], entry_point: str, tables: Mapping[str, Any], dataset: Any) -> Reply:
        """Make the worker of these tables, on data in the object store of this machine."""
        try:
            torch.set_num_threads(1)
            keep_freed_memory()
            sys.path[:] = [*settings["path"], *(path for path in sys.path if path not in settings["path"])]
            if Path(settings["folder"]).is_dir():  # on the same machine, or one that shares its files
                os.chdir(settings["folder"])
            self._worker = resolve_name(entry_point)(tables, to_tensors(dataset, shared=True))
            return ("done", (os.getpid(), machine_info()))
        except Exception as error:
            return ("failed", *describe_error(error))

    def run(self, call: int, shared: Any, method: str, arguments: Any) -> Reply:
        try:
            if call != self._call:
                self._call, self._shared = call, to_tensors(shared)
            return ("done", to_arrays(getattr(self, f"_{method}")(*to_tensors(arguments))))
        except Exception as error:
            return ("failed", *describe_error(error))

    def _train(self, *block: Any) -> ClientResults:
        return self._worker.train(self._task(*block))

    def _fold(self, *block: Any) -> BlockResult:
        return self._worker.fold(self._task(*block), self._shared[-1])

    def _gradients(self, *block: Any) -> Updates:
        return self._worker.gradients(self._task(*block))

    def _task(self, clients: tuple[int, ...], states: tuple[Any, ...], attackers: frozenset[int]) -> TrainTask:
        w, broadcast, context, attack_state, _ = self._shared
        return TrainTask(clients, w, broadcast, context, states, attackers, attack_state)

    def _train_root(self) -> Tensor:
        w, context, buffers = self._shared
        return self._worker.train_root(w, context, buffers)

    def _score(self, block: int) -> Score:
        w, buffers = self._shared
        return self._worker.score(w, block, buffers)


@dataclass(frozen=True)
class Array:
    """A tensor on its way."""

    values: NDArray[Any]


def to_arrays(value: Any) -> Any:
    """The value with arrays in place of its tensors, however deep in dataclasses, mappings and tuples.

    A tensor of a type that numpy does not have stays as it is.
    """
    return _transform(value, Tensor, _to_array)


def to_tensors(value: Any, shared: bool = False) -> Any:
    """The value with tensors again: copies, or with `shared` read-only views of the memory in which they arrived."""
    return _transform(value, Array, lambda array: _to_tensor(array.values, shared))


def _to_array(tensor: Tensor) -> Any:
    try:
        return Array(tensor.detach().cpu().contiguous().numpy())
    except TypeError:
        return tensor


def _to_tensor(values: NDArray[Any], shared: bool) -> Tensor:
    with warnings.catch_warnings():  # about read-only memory
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.from_numpy(values)
    return tensor if shared and tensor.data_ptr() % ALIGN == 0 else tensor.clone()


def _transform(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The value with `change` applied to everything of this type."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _transform(inner, kind, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        items = [_transform(inner, kind, change) for inner in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        changed: Any = copy.copy(value)
        held = vars(value) if hasattr(value, "__dict__") else {f.name: getattr(value, f.name) for f in fields(value)}
        for name, inner in held.items():
            object.__setattr__(changed, name, _transform(inner, kind, change))  # most of them are frozen
        return changed
    return value
