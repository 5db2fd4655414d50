"""Other libraries on the same workload: same model, clients, steps and batches, set up as in their own tutorials.

A peer module has `NAME`, `DISTRIBUTION`, and `round_of(workload, given)`, which builds a function that runs one
round of FedAvg without evaluation; its `close`, if any, is called at the end. A module that starts its own processes
sets `PROCESSES`: the number of threads is not varied. Where clients train by epochs, each of
them holds exactly `steps * batch` samples and makes one pass. A library that is not installed is skipped.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import Any

PEERS = ("fedlab", "fluke", "pfl", "flower")
LOGGERS = ("pfl", "flwr", "alembic", "ray")  # silenced


def installed() -> Iterator[tuple[str, Any]]:
    """(name and version, module) of the peers that can be imported."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in PEERS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings of their imports
                module = import_module(f"benchmarks.peers.{name}")
            yield f"{module.NAME} {metadata.version(module.DISTRIBUTION)}", module
        except ImportError:
            continue
