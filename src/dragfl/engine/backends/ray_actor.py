"""What a worker of a cluster does: it puts the experiment in place once, and then answers one block after the other.

An answer is ("done", result) or ("failed", what, message, traceback): errors travel as words, as those of a user's own
classes may not exist elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.allocator import keep_freed_memory
from dragfl.engine.backends.ray_arrays import packed, unpacked
from dragfl.engine.backends.worker_process import described
from dragfl.engine.worker import ClientResults, Score, TrainTask, Worker

Answer = tuple[Any, ...]


def machine() -> dict[str, str]:
    """What the last bits of a result depend on."""
    versions = {name: version(name) for name in ("dragfl", "torch", "numpy")}
    return versions | {"CPU": torch.backends.cpu.get_cpu_capability()}


class Desk:
    """An experiment put in place, and what the blocks of the call at hand have in common."""

    def __init__(self) -> None:
        self._worker: Worker
        self._call = 0
        self._common: Any = None

    def prepare(self, process: Mapping[str, Any], tables: Mapping[str, Any], dataset: Any) -> Answer:
        """The experiment of these tables, on data that lie in the memory of this machine."""
        from dragfl.build import equip
        from dragfl.config.spec import load

        try:
            torch.set_num_threads(1)
            keep_freed_memory()
            sys.path[:] = [*process["path"], *(path for path in sys.path if path not in process["path"])]
            if Path(process["folder"]).is_dir():  # as on this machine, or on one that shares its files
                os.chdir(process["folder"])
            self._worker = equip(load(tables), unpacked(dataset, shared=True))[1]
            return ("done", os.getpid(), machine())
        except Exception as error:
            return ("failed", *described(error))

    def work(self, call: int, common: Any, kind: str, arguments: Any) -> Answer:
        try:
            if call != self._call:
                self._call, self._common = call, unpacked(common)
            return ("done", packed(getattr(self, f"_{kind}")(*unpacked(arguments))))
        except Exception as error:
            return ("failed", *described(error))

    def _train(self, *block: Any) -> ClientResults:
        return self._worker.train(self._job(*block))

    def _fold(self, *block: Any) -> BlockResult:
        return self._worker.fold(self._job(*block), self._common[-1])

    def _job(self, clients: tuple[int, ...], states: tuple[Any, ...], attackers: frozenset[int]) -> TrainTask:
        w, sent, context, attack_state, _ = self._common
        return TrainTask(clients, w, sent, context, states, attackers, attack_state)

    def _score(self, block: int) -> Score:
        w, buffers = self._common
        return self._worker.score(w, block, buffers)
