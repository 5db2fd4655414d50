"""Run a tiny experiment and end the process at its i-th file operation, for every i.

Run as a script in an empty folder; prints `operations=N crashes=M` and fails if a resumed run differs. A crash comes
*before* an operation (an open, rename, remove, truncate, mkdir or fsync inside the run directory) or *during* the write
of a file, which leaves half of it on disk. Children are forked before torch starts any thread, so one interpreter
serves hundreds of crashes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

torch.set_num_threads(1)

import dragfl  # noqa: E402
import dragfl.runs.loop  # noqa: E402

SPEC: dict[str, Any] = {
    "rounds": 3,
    "clients": {"total": 3, "local_steps": 1, "batch_size": 4},
    "algorithm": {"name": "drag"},
    "model": {"name": "logistic"},
    "evaluation": {"every": 2},
    "checkpoint": {"every": 2},
}
KEPT = ("metrics.jsonl", "clients.jsonl", "model.safetensors", "result.json", "spec.toml")
EVENTS = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir"}
CRASHED = 77


def in_child(work: Callable[[], None], folder: Path, crash_at: int) -> tuple[int, int]:
    """(exit code, file operations) of the work; it ends before operation i, or for -i while it writes file i."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seen = 0

        def note(path: object) -> None:
            nonlocal seen
            if folder.name in os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else True:
                seen += 1
                if seen == crash_at:
                    os._exit(CRASHED)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in EVENTS and isinstance(arguments[0], str | bytes | os.PathLike):
                note(arguments[0])

        written = 0

        def torn(write: Callable[..., None]) -> Callable[..., None]:
            def write_and_tear(*arguments: Any) -> None:
                nonlocal written
                write(*arguments)
                written += 1
                if written == -crash_at:
                    path = next(a for a in arguments if isinstance(a, Path))
                    os.truncate(path, path.stat().st_size // 2)
                    os._exit(CRASHED)

            return write_and_tear

        Path.write_bytes = torn(Path.write_bytes)  # type: ignore[method-assign,assignment]
        safetensors.torch.save_file = torn(safetensors.torch.save_file)
        fsync = os.fsync
        os.fsync = lambda descriptor: (note(None), fsync(descriptor))[1]  # type: ignore[assignment,func-returns-value]
        sys.addaudithook(hook)
        work()
        os.write(writing, str(seen).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return os.waitstatus_to_exitcode(status), int(pipe.read() or 0)


def kept(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in KEPT}


def start_or_resume(folder: Path) -> None:
    """What a user does after a crash: resume, or run again if there is no run yet."""
    if (folder / "spec.toml").exists():
        dragfl.resume(folder)
    else:
        dragfl.run(dragfl.load(SPEC), folder)


def check(name: str, whole: dict[str, bytes], *crashes: int) -> int:
    """Crash in one attempt after another, then let one finish; returns the number of crashes."""
    folder = Path(name)
    cut = 0
    for crash_at in crashes:
        code, _ = in_child(lambda: start_or_resume(folder), folder, crash_at)
        if code not in (0, CRASHED):
            raise SystemExit(f"crashes at {crashes}: an attempt ended with {code}")
        cut += code == CRASHED
    if (folder / "result.json").exists() != (folder / "model.safetensors").exists():
        assert not (folder / "result.json").exists(), f"crashes at {crashes}: a result without a model"
    code, _ = in_child(lambda: start_or_resume(folder), folder, 0)
    if code != 0 or kept(folder) != whole:
        raise SystemExit(f"crashes at {crashes}: the resumed run differs or failed ({code})")
    left = [path.name for path in folder.iterdir() if path.suffix == ".tmp"]
    if left:
        raise SystemExit(f"crashes at {crashes}: {left} were left behind")
    return cut


def main() -> None:
    list(dragfl.simulate(dragfl.load(SPEC)))  # every import is made before the first fork
    whole_folder = Path("whole_run")
    code, operations = in_child(lambda: start_or_resume(whole_folder), whole_folder, 0)
    assert code == 0
    whole = kept(whole_folder)
    crashes = sum(check(f"one_{i:03d}", whole, i) for i in range(1, operations + 1))
    assert crashes == operations, f"{crashes} crashes for {operations} operations"
    files = 0
    while check(f"torn_{files + 1:03d}", whole, -(files + 1)):
        files += 1
    assert files >= 8, f"{files} files: spec, machine, two checkpoints of two files, model, result"
    crashes += files
    for first in range(3, operations, 5):  # and a second crash during the resume
        second = 2 + first * 7 % 23
        crashes += check(f"two_{first:03d}_{second:03d}", whole, first, second)
    print(f"operations={operations} crashes={crashes}")  # noqa: T201


if __name__ == "__main__":
    main()
