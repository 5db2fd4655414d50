"""Results of a whole round, kept until they are folded: in memory up to a limit, beyond it in a temporary file."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from dragfl.engine.client import ClientResults
from dragfl.errors import Interrupted


def keep_results(blocks: Iterable[ClientResults], memory_bytes: int) -> list[ClientResults]:
    """All blocks. From the one that exceeds the limit on, their tensors lie in an unlinked temporary file.

    The file is removed when the last of its tensors is.
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
            copy = torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
            return copy.copy_(tensor)

        def spilled_all(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: spilled(value) for name, value in tensors.items()}

        for block in blocks:
            used += block.bytes_up + sum(value.nbytes for state in block.states for value in state.values())
            if used > memory_bytes:
                updates = block.updates
                updates = replace(updates, delta=spilled(updates.delta), extra=spilled_all(updates.extra))
                block = replace(block, updates=updates, states=tuple(spilled_all(state) for state in block.states))
            kept.append(block)
    return kept
