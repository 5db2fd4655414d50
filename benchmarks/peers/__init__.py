"""Other libraries on the same workload: same model, clients, steps and batches, set up as in their own tutorials.

A peer module has `NAME`, `DISTRIBUTION`, and `round_of(workload, given)`, which builds a function that runs one
round of FedAvg without evaluation; its `close`, if any, is called at the end. Where clients train by epochs, each of
them holds exactly `steps * batch` samples and makes one pass. A library that is not installed is skipped.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata

from benchmarks.bare import Preloaded
from benchmarks.workloads import Workload

PEERS = ("fedlab", "fluke", "pfl", "flower")
LOGGERS = ("pfl", "flwr", "alembic", "ray")  # silenced


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    processes: bool  # it starts its own processes, so threads are not varied
    round_of: Callable[[Workload, Preloaded], Callable[[], object]]


def installed() -> Iterator[Peer]:
    """The peers that can be imported."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in PEERS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings of their imports
                module = import_module(f"benchmarks.peers.{name}")
            version, processes = metadata.version(module.DISTRIBUTION), getattr(module, "PROCESSES", False)
            yield Peer(module.NAME, version, processes, module.round_of)
        except ImportError:
            continue
