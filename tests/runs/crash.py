"""Run a tiny experiment, and resume what a crash at its i-th file operation leaves, for every i.

Run as a script in an empty folder; prints `operations=N crashes=M` and fails if a resumed run differs. A crash comes
*before* an operation (an open, rename, remove, truncate, mkdir or fsync inside the run directory) or *during* the write
of a file, which leaves half of it on disk. What it leaves is a copy of the run directory at that moment. An audit hook
sees the operations; it cannot be removed, so this is a process of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

torch.set_num_threads(1)

import dragfl  # noqa: E402

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


class Watch:
    """Counts the file operations in one folder, and copies the folder at some of them."""

    folder: Path | None = None

    def begin(self, folder: Path, at: int | None = None) -> None:
        """`at`: copy at this operation only; None for all of them and all files half written."""
        self.folder, self.at, self.operations, self.files = folder, at, 0, 0

    def end(self) -> None:
        self.folder = None

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if arguments else None
        if self.folder is None or event not in EVENTS or not isinstance(path, str | bytes | os.PathLike):
            return
        if self.folder.name in os.fsdecode(path):
            self.note()

    def note(self) -> None:
        if self.folder is not None:
            self.operations += 1
            if self.at in (None, self.operations):
                with self.paused() as folder:
                    copy(folder, f"before_{self.operations:03d}")

    @contextmanager
    def paused(self) -> Iterator[Path]:
        """What is done in here does not count."""
        folder, self.folder = self.folder, None
        assert folder is not None
        yield folder
        self.folder = folder

    def torn(self, write: Callable[..., None]) -> Callable[..., None]:
        """Copies the folder with one half of a file, then writes the file again."""

        def write_twice(*arguments: Any) -> None:
            write(*arguments)
            if self.folder is None or self.at is not None:
                return
            self.files += 1
            path = next(a for a in arguments if isinstance(a, Path))
            with self.paused() as folder:
                os.truncate(path, path.stat().st_size // 2)
                copy(folder, f"torn_{self.files:03d}")
                write(*arguments)

        return write_twice


def copy(folder: Path, name: str) -> None:
    if folder.exists():
        shutil.copytree(folder, f"{folder.name}_{name}")


WATCH = Watch()


def fsync(descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
    WATCH.note()
    real(descriptor)


def kept(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in KEPT}


def start_or_resume(folder: Path) -> None:
    """What a user does after a crash: resume, or run again if there is no run yet."""
    if (folder / "spec.toml").exists():
        dragfl.resume(folder)
    else:
        dragfl.run(dragfl.load(SPEC), folder)


def check(folder: Path, whole: dict[str, bytes]) -> None:
    """Let an attempt finish where another has crashed."""
    if (folder / "result.json").exists() != (folder / "model.safetensors").exists():
        assert not (folder / "result.json").exists(), f"{folder}: a result without a model"
    start_or_resume(folder)
    if kept(folder) != whole:
        raise SystemExit(f"{folder}: the resumed run differs")
    left = [path.name for path in folder.iterdir() if path.suffix == ".tmp"]
    if left:
        raise SystemExit(f"{folder}: {left} were left behind")


def main() -> None:
    list(dragfl.simulate(dragfl.load(SPEC)))  # makes every import
    Path.write_bytes = WATCH.torn(Path.write_bytes)  # type: ignore[method-assign,assignment]
    safetensors.torch.save_file = WATCH.torn(safetensors.torch.save_file)
    os.fsync = fsync
    sys.addaudithook(WATCH.hook)
    whole_folder = Path("whole")
    WATCH.begin(whole_folder)
    start_or_resume(whole_folder)
    WATCH.end()
    operations, files, whole = WATCH.operations, WATCH.files, kept(whole_folder)
    assert files >= 8, f"{files} files: spec, machine, two checkpoints of two files, model, result"
    first = [Path(f"whole_before_{i:03d}") for i in range(1, operations + 1)]
    second = []
    for i in range(3, operations, 5):  # a second crash during the resume
        folder, at = Path(f"twice_{i:03d}"), 2 + i * 7 % 23
        shutil.copytree(first[i - 1], folder)
        WATCH.begin(folder, at)
        start_or_resume(folder)
        WATCH.end()
        second.append(Path(f"{folder}_before_{at:03d}") if WATCH.operations >= at else folder)
    crashes = [*first, *(Path(f"whole_torn_{i:03d}") for i in range(1, files + 1)), *second]
    for folder in crashes:
        check(folder, whole)
    print(f"operations={operations} crashes={len(crashes)}")  # noqa: T201


if __name__ == "__main__":
    main()
