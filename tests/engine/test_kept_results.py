"""Results that are kept for a whole round: in memory up to a limit, beyond it in a temporary file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest
import torch

from dragfl.engine.client import ClientResults
from dragfl.engine.kept_results import keep_results
from dragfl.errors import Interrupted
from dragfl.types import Updates


def test_results_beyond_the_limit_are_stored_in_a_file_with_the_same_bits() -> None:
    """Three blocks of 40 bytes of updates, 24 of extras and 16 of states: the second exceeds a limit of 100 bytes."""
    blocks = [results(first) for first in (0, 2, 4)]
    kept = keep_results(blocks, 100)
    assert kept[0] is blocks[0]
    for before, after in zip(blocks[1:], kept[1:], strict=True):
        assert after.updates.delta.data_ptr() != before.updates.delta.data_ptr()
        assert torch.equal(after.updates.delta, before.updates.delta)
        assert torch.equal(after.updates.extra["e"], before.updates.extra["e"])
        assert torch.equal(after.states[1]["s"], before.states[1]["s"])


@pytest.mark.parametrize("limit", [0, 10_000], ids=["in a file", "in memory"])
def test_blocks_that_are_overwritten_by_the_next(limit: int) -> None:
    """As those of worker processes, which lie in slots of the shared memory."""
    slot = results(0)

    def overwritten() -> Iterator[ClientResults]:
        for first in (0, 2, 4):
            slot.updates.delta.copy_(results(first).updates.delta)
            slot.updates.extra["e"].copy_(results(first).updates.extra["e"])
            yield slot

    for kept, first in zip(keep_results(overwritten(), limit, copy=True), (0, 2, 4), strict=True):
        assert torch.equal(kept.updates.delta, results(first).updates.delta)
        assert torch.equal(kept.updates.extra["e"], results(first).updates.extra["e"])
        assert torch.equal(kept.states[1]["s"], results(first).states[1]["s"])


def results(first: int) -> ClientResults:
    delta = torch.randn(2, 5, generator=torch.Generator().manual_seed(first))
    updates = Updates(delta, torch.ones(2).double(), torch.tensor([first, first + 1]), {"e": delta[:, :3].clone()})
    return ClientResults(updates, (0.1, 0.2), (1, 1), ({"s": delta[0, :2]}, {"s": delta[1, :2]}))


def test_without_space_for_the_file_the_run_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    assert keep_results([results(0)], 1000), "within the limit no file is needed"
    with pytest.raises(Interrupted, match=r"40 bytes.*No space left on device.*TMPDIR.*state\.memory_mb"):
        keep_results([results(0)], 0)
