"""Processes below another one, and waiting until they have ended. Waits for states, never for seconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dragfl.flower.guard import descendants
from tests.runs.processes import wait_until

__all__ = ["below", "living", "pid_of", "wait_until", "wait_until_gone"]

Process = tuple[int, str]  # pid and the time of its start: a pid is used again


def below(pid: int) -> set[Process]:
    """All living descendants of a process."""
    return {(child, started) for child in descendants(pid) if (started := _start_time(child))}


def living(processes: Iterable[Process]) -> set[Process]:
    return {(pid, started) for pid, started in processes if _start_time(pid) == started}


def wait_until_gone(processes: Iterable[Process]) -> None:
    watched = set(processes)
    wait_until(lambda: not living(watched))


def _start_time(pid: int) -> str:
    """The time of its start; empty for a process that has ended, a zombie too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def pid_of(command: str, root: int) -> int:
    """The process below `root` that runs this command."""
    found = [pid for pid, _ in below(root) if command in _command_line(pid)]
    assert found, f"no {command} below {root}"
    return min(found)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
