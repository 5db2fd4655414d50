"""Results of a whole round, kept until they are folded: in memory up to a limit, beyond it in a temporary file."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from dragfl.engine.client import ClientResults
from dragfl.errors import Interrupted


def keep_results(blocks: Iterable[ClientResults], memory_bytes: int, copy: bool = False) -> list[ClientResults]:
    """All blocks. From the one that exceeds the limit on, their tensors lie in an unlinked temporary file.

    The file is removed when the last of its tensors is. With `copy` the blocks may be overwritten when the next one is
    requested.
    """
    kept: list[ClientResults] = []
    used = 0
    with tempfile.TemporaryFile(prefix="dragfl-updates-") as file:

        def spilled(tensor: Tensor) -> Tensor:
            if not tensor.nbytes or tensor.device.type != "cpu":
                return tensor
            start = -(-file.seek(0, 2) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
            try:
                os.posix_fallocate(file.fileno(), start, tensor.nbytes)  # a write to a full disk would kill the process
            except OSError as error:
                raise Interrupted(
                    f"{tempfile.gettempdir()}: the updates of this round need a temporary file, and {tensor.nbytes} "
                    f"bytes cannot be reserved ({error.strerror}); set TMPDIR to a larger disk or raise state.memory_mb"
                ) from None
            memory = mmap.mmap(file.fileno(), tensor.nbytes, offset=start)
            stored = torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
            return stored.copy_(tensor)

        for block in blocks:
            used += block.bytes_up + sum(value.nbytes for state in block.states for value in state.values())
            if used > memory_bytes:
                block = _moved(block, spilled)
            elif copy:
                block = _moved(block, Tensor.clone)
            kept.append(block)
    return kept


def _moved(block: ClientResults, move: Callable[[Tensor], Tensor]) -> ClientResults:
    """The block with every large tensor replaced by a copy."""

    def all_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: move(value) for name, value in tensors.items()}

    updates = replace(block.updates, delta=move(block.updates.delta), extra=all_of(block.updates.extra))
    return replace(block, updates=updates, states=tuple(map(all_of, block.states)))
