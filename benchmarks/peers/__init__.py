"""Other libraries at the same work: same model, clients, steps and batches, as their own tutorials drive them.

A peer module has `NAME`, `DISTRIBUTION`, and `round_of(work, given)`, which makes a function that plays one round of
FedAvg without evaluation; if that has a `close` it is called at the end. Where clients train by the epoch each of them
holds exactly `steps * batch` samples and makes one pass. A library that cannot be imported is left out.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata

from benchmarks.bare import Preloaded
from benchmarks.works import Work

PEERS = ("fedlab", "fluke", "pfl", "flower")
TALKATIVE = ("pfl", "flwr", "alembic", "ray")  # loggers


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    processes: bool  # it brings processes of its own, and has no use for threads
    round_of: Callable[[Work, Preloaded], Callable[[], object]]


def installed() -> Iterator[Peer]:
    """Those that can be imported here."""
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in PEERS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what they import, which is none of ours
                module = import_module(f"benchmarks.peers.{name}")
            version, processes = metadata.version(module.DISTRIBUTION), getattr(module, "PROCESSES", False)
            yield Peer(module.NAME, version, processes, module.round_of)
        except ImportError:
            continue
