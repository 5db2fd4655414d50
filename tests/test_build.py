"""The default block size."""

from __future__ import annotations

import pytest

import dragfl
from dragfl.build import BLOCK_BYTES, default_block
from tests.conftest import Load


def test_default_block_is_part_of_the_resolved_spec(experiment: Load) -> None:
    assert dragfl.simulate(experiment()).experiment.engine.block == 32


@pytest.mark.parametrize("dim", [1, 10**5, 416_047, 797_962, 10**9])
def test_the_default_block_is_a_power_of_two_within_32_mb(dim: int) -> None:
    """A power of two, at most 32 and at most 32 MB of updates, but at least one client."""
    block = default_block(dim)
    assert block in (1, 2, 4, 8, 16, 32)
    assert block == 1 or 4 * dim * block <= BLOCK_BYTES
    assert block == 32 or 4 * dim * 2 * block > BLOCK_BYTES
