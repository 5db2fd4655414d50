"""The rows of the table by name."""

from __future__ import annotations

import time
import traceback
import zlib
from pkgutil import resolve_name

from rich.console import Console

from tests.faults.runs import bench
from tests.faults.table import Row

# Module and function of each; the long ones first: two rows run at a time.
ROWS: dict[str, str] = {
    "kill-local": "kills:killed_local",
    "kill-pool": "kills:killed_pool",
    "kill-store": "kills:killed_store",
    "kill-ray": "kills:killed_ray",
    "kill-ray-workers": "kills:killed_ray_workers",
    "kill-flower-server": "federation:killed_server_parts",
    "kill-flower-clients": "federation:killed_client_parts",
    "kill-pool-workers": "kills:killed_pool_workers",
    "damage-finished": "damage:finished_files",
    "damage-unfinished": "damage:unfinished_files",
    "damage-store": "damage:store_files",
    "damage-flower": "damage:flower_files",
    "signals-local": "kills:signalled_local",
    "signals-pool": "kills:signalled_pool",
    "fuzz-results": "replies:server_results",
    "fuzz-messages": "replies:reply_messages",
    "disk-full-local": "disks:full_local",
    "disk-full-pool": "disks:full_pool",
    "disk-full-store": "disks:full_store",
    "tmp-full": "disks:full_tmp",
    "read-only": "disks:read_only",
    "turned-read-only": "disks:turned_read_only",
    "clock": "around:clock",
    "together": "around:together",
    "read-while-running": "around:read_while_running",
    "little-memory": "around:little_memory",
}


def run_row(name: str, seed: int, quick: bool) -> Row:
    """One row of the table, with the seconds it took. An error of the row itself is a loss."""
    console, started = Console(stderr=True), time.perf_counter()
    with bench(zlib.crc32(f"{seed} {name}".encode()), quick, lambda text: console.print(f"  {name}: {text}")) as given:
        try:
            row = resolve_name(f"tests.faults.{ROWS[name]}")(given)
        except Exception:
            row = Row(name)
            row.add("lost", detail=traceback.format_exc())
    row.seconds = time.perf_counter() - started
    return row
