"""The connection of this process to Ray: the one there is, one to a cluster, or a Ray of its own on this machine."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from dragfl.errors import SpecError

ADDRESS = "RAY_ADDRESS"  # where Ray's own tools look for the cluster, too

# Read by Ray as it is imported. It tells of lost workers and full stores on standard output; we log the first.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": r"A worker died or was killed|Spilled \d"}

# Read by the processes of a Ray of our own: if we are killed, its helpers look for its head this long and end.
_SHORT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}

_guests = 0  # those who use a connection that was made here
_alone = False  # whether it is one to a Ray of our own


def require() -> None:
    """An error that names the extra, before anything runs."""
    if find_spec("ray") is None:
        raise SpecError(
            "engine.executor: 'ray' needs Ray, not installed here: pip install 'dragfl[ray]'; "
            "or set engine.executor = 'local' to train on this machine"
        )


def ray() -> Any:
    """The package, imported when a cluster is used: it takes half a second."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


class Session:
    """A use of the connection. The last one to leave closes it if it was made here."""

    def __init__(self, cpus: int) -> None:
        """`cpus`: how many workers a Ray of our own starts with."""
        global _guests
        self._guest = _guests > 0 or not ray().is_initialized()
        if not ray().is_initialized():
            _connect(cpus)
        _guests += self._guest
        self.alone = self._guest and _alone

    def leave(self) -> None:
        global _guests
        _guests -= self._guest
        if self._guest and not _guests:
            ray().shutdown()
        self._guest = False


def _connect(cpus: int) -> None:
    global _alone
    address = os.environ.get(ADDRESS) or "local"
    _alone = address == "local"
    where = {"address": address} | ({"num_cpus": cpus, "include_dashboard": False} if _alone else {})
    try:
        _ask(address)
        with _as_it_was(_SHORT if _alone else {}):
            ray().init(log_to_driver=False, logging_level=logging.ERROR, **where)
    except BaseException as error:
        with suppress(Exception):
            ray().shutdown()
        if isinstance(error, OSError) and not _alone:
            raise SpecError(
                f"no Ray cluster answers at {ADDRESS} = '{address}' ({error}); start one with `ray start --head`, "
                f"or unset {ADDRESS}"
            ) from None
        raise


def _ask(address: str) -> None:
    """An OSError if nobody listens there; Ray itself would ask again for minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()


@contextmanager
def _as_it_was(environment: Mapping[str, str]) -> Iterator[None]:
    """With some variables set for what is started here; and what SIGTERM does is not for Ray to decide."""
    before, own = signal.getsignal(signal.SIGTERM), [name for name in environment if name not in os.environ]
    try:
        os.environ.update({name: environment[name] for name in own})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for name in own:
            del os.environ[name]
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
