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
    """Six clients make two blocks of three."""
    assert dragfl.simulate(experiment()).experiment.engine.block == 3


@pytest.mark.parametrize("dim", [1, 10**5, 416_047, 797_962, 10**9])
@pytest.mark.parametrize("cohort", [1, 2, 3, 10, 40])
def test_the_default_block_has_at_most_16_mb_and_makes_an_even_number_of_blocks(dim: int, cohort: int) -> None:
    """At most 32 clients and 16 MB of updates, but at least one client; 3 clients in 2 blocks are 2 and 1."""
    block = default_block(dim, cohort)
    assert 1 <= block <= 32
    assert block == 1 or 4 * dim * block <= BLOCK_BYTES
    assert -(-cohort // block) % 2 == 0 or block == 1


@pytest.mark.parametrize(("dim", "cohort", "block"), [(416_047, 40, 10), (416_047, 10, 5), (797_962, 20, 5)])
def test_the_default_block(dim: int, cohort: int, block: int) -> None:
    """40 clients of 1.7 MB: 10 fit into 16 MB, so 4 blocks. 10 clients fit into one: 2 blocks. 20 of 3.2 MB: 4 of 5."""
    assert default_block(dim, cohort) == block


def test_updates_that_came_over_a_network_are_kept_on_disk_earlier(experiment: Load) -> None:
    def connect(_: Experiment, worker: Worker) -> tuple[Backend, ClientStore]:
        return LocalBackend(worker), open_store({}, worker.info, 0, "error")

    assert build_federation(experiment())[1].kept_bytes == 1024 << 20
    assert build_federation(experiment(), connect=connect)[1].kept_bytes == RECEIVED_MB << 20
    assert build_federation(experiment("state.memory_mb=8"), connect=connect)[1].kept_bytes == 8 << 20
