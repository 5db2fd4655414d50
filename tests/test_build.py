"""The default block size."""

from __future__ import annotations

import pytest

import dragfl
from dragfl.build import BLOCK_BYTES, RECEIVED_MB, build_federation, default_block
from dragfl.config.spec import Experiment
from dragfl.engine.backends import Backend
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.client_store import ClientStore, open_store
from dragfl.engine.simulator import Worker
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


def test_updates_that_came_over_a_network_are_kept_on_disk_earlier(experiment: Load) -> None:
    def connect(_: Experiment, worker: Worker) -> tuple[Backend, ClientStore]:
        return LocalBackend(worker), open_store({}, worker.info, 0, "error")

    assert build_federation(experiment())[1].kept_bytes == 1024 << 20
    assert build_federation(experiment(), connect=connect)[1].kept_bytes == RECEIVED_MB << 20
    assert build_federation(experiment("state.memory_mb=8"), connect=connect)[1].kept_bytes == 8 << 20
