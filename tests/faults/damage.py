"""Damaged files of a run directory: torn, cut, with flipped bits, swapped with those of another run, deleted.

Each injection damages one file of a copy of a good run and then reads the run, or resumes it. The outcome is "named"
if a `DragflError` names the file, "harmless" if every number is the right one, "same_bytes" if the resumed run has the
bytes of the uninterrupted one. A line of an unfinished run that was written after its last checkpoint has no checksum:
such bytes are damaged only for resume, which cuts them off.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dragfl
from dragfl.errors import DragflError
from dragfl.report import read_summary
from dragfl.runs.digests import MISMATCH
from dragfl.runs.directory import CHECKPOINT, LOCK, LOGS, NODES, RESULT, load_run
from tests.faults.runs import Bench, difference
from tests.faults.table import Row
from tests.flower.native import Federation

ROUNDS, STOP = 9, 6  # the unfinished runs have a checkpoint of round 4 and log lines of two more rounds
TABLES: dict[str, Any] = {
    "name": "faults",
    "rounds": ROUNDS,
    "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
    "clients": {"total": 6, "per_round": 4, "local_steps": 1, "batch_size": 4},
    "model": {"name": "logistic"},
    "evaluation": {"every": 2},
    "checkpoint": {"every": 2},
}
STORE = {"algorithm": {"name": "scaffold"}, "state": {"memory_mb": 0}}
TEXT = (".json", ".jsonl", ".toml")
DIGITS = b"0123456789"


class Cut(Exception):
    """Ends a run as a crash does: after a round is logged, before its checkpoint."""


@dataclass(frozen=True)
class Good:
    """A run that is damaged, the uninterrupted one, and another run whose files are swapped in."""

    run: Path
    whole: Path
    other: Path
    earlier: Path  # the same run some rounds before

    def files(self) -> list[str]:
        return sorted(path.name for path in self.run.iterdir() if path.is_file() and path.name != LOCK)

    def checked_bytes(self, name: str) -> int:
        """The length of the part of a file that has a checksum."""
        if name in LOGS and not (self.run / RESULT).exists():
            return int(json.loads((self.run / CHECKPOINT).read_text())["lengths"][name])
        return (self.run / name).stat().st_size


def stopped(folder: Path, tables: dict[str, Any], after: int) -> Path:
    """A run that has crashed after a round."""

    def cut(record: dragfl.RoundRecord) -> None:
        if record.round == after:
            raise Cut

    try:
        dragfl.run(tables, folder, on_record=cut)
    except Cut:
        return folder
    return folder


def good_run(folder: Path, *, finished: bool, **tables: Any) -> Good:
    tables = TABLES | {"algorithm": {"name": "drag"}} | tables
    end = ROUNDS + 1 if finished else STOP - 1
    return Good(
        stopped(folder / "run", tables, end),
        stopped(folder / "whole", tables, ROUNDS + 1),
        stopped(folder / "other", {**tables, "seed": 1}, end),
        stopped(folder / "earlier", tables, 3),
    )


def finished_files(bench: Bench) -> Row:
    return _damage(bench, "finished", good_run(bench.folder, finished=True))


def unfinished_files(bench: Bench) -> Row:
    return _damage(bench, "unfinished", good_run(bench.folder, finished=False))


def store_files(bench: Bench) -> Row:
    return _damage(bench, "unfinished, client states on disk", good_run(bench.folder, finished=False, **STORE))


def flower_files(bench: Bench) -> Row:
    """nodes.json of a run on Flower, here on a federation in memory."""
    experiment, folder = dragfl.load({**TABLES, "algorithm": {"name": "drag"}}), bench.folder
    runs = [Federation(experiment, folder / f"states-{name}").run(folder / name).path for name in ("run", "other")]
    good = Good(runs[0], runs[0], runs[1], runs[1])
    return _damage(bench, "finished, Flower", good, only=(NODES,))


def _damage(bench: Bench, kind: str, good: Good, only: tuple[str, ...] = ()) -> Row:
    torch.set_num_threads(1)
    row, copy = Row("damaged file", kind), bench.folder / "copy"
    expected = numbers(good.run)
    for name in only or good.files():
        size = good.checked_bytes(name)
        for what, content in damages(bench, good, name, size):
            for use in (read_again, resume_again):
                if use is read_again and "after the checkpoint" in what:
                    continue
                shutil.copytree(good.run, copy)
                if content is None:
                    (copy / name).unlink()
                else:
                    (copy / name).write_bytes(content)
                outcome, detail = use(copy, name, good, expected)
                row.add(outcome, detail=f"{kind}, {name}, {what}, {use.__name__}: {detail}")
                shutil.rmtree(copy)
        row.trials += 1
        bench.tick(f"{row.trials} of {len(only or good.files())} files")
    return row


def damages(bench: Bench, good: Good, name: str, size: int) -> Iterator[tuple[str, bytes | None]]:
    """(description, new content) of every kind of damage, at every class of position."""
    whole, draws = (good.run / name).read_bytes(), bench.draws
    yield "deleted", None
    yield "empty", b""
    for what, folder in (("another run's", good.other), ("an earlier", good.earlier)):
        if (folder / name).exists() and (folder / name).read_bytes() != whole:
            yield f"{what} file", (folder / name).read_bytes()
    for _ in range(bench.number(2, 1)):
        for where, at in positions(draws, whole, size):
            changes: dict[str, bytes] = {
                "bit flipped": _replaced(whole, at, whole[at] ^ (1 << int(draws.integers(8)))),
                "another byte": _replaced(whole, at, int(draws.integers(256))),
                "another digit": _replaced(whole, at, DIGITS[int(draws.integers(10))]),
                "byte removed": whole[:at] + whole[at + 1 :],
                "byte doubled": whole[: at + 1] + whole[at:],
                "cut": whole[:at],
                "torn (zeros to the end)": whole[:at] + bytes(len(whole) - at),
                "torn (zeros in a block)": whole[:at] + bytes(min(512, len(whole) - at)) + whole[at + 512 :],
            }
            for how, content in changes.items():
                if content != whole:
                    yield f"{how} at {at} of {len(whole)} ({where})", content


def positions(draws: np.random.Generator, content: bytes, size: int) -> Iterator[tuple[str, int]]:
    """A position of each class: header, middle, last byte, newline, in a number, after the checkpoint."""
    if not size:
        return
    yield "header", int(draws.integers(min(8, size)))
    yield "middle", int(draws.integers(size))
    yield "last byte", size - 1
    data = np.frombuffer(content, np.uint8)[:size]
    for where, kept in (("newline", data == 10), ("in a number", (data >= 48) & (data < 58))):
        found = np.flatnonzero(kept)
        if len(found):
            yield where, int(draws.choice(found))
    if size < len(content):
        yield "after the checkpoint", int(draws.integers(size, len(content)))


def _replaced(content: bytes, at: int, value: int) -> bytes:
    return content[:at] + bytes([value]) + content[at + 1 :]


def numbers(path: Path) -> dict[str, Any]:
    """Everything that is read from a run: its files, its model, and the report's numbers."""
    run = load_run(path)
    found: dict[str, Any] = {
        "settings": run.result_settings, "metrics": run.metrics, "clients": run.clients, "timing": run.timing,
        "result": run.result, "nodes": run.nodes, "finished": run.finished,
    }  # fmt: skip
    found["fingerprints"] = run.info["fingerprints"]
    if run.finished:
        found["model"] = {name: value.numpy().tobytes() for name, value in run.model().items()}
    found["summary"] = json.dumps(read_summary(path).values(), sort_keys=True).replace(str(path), "")
    return found


def read_again(copy: Path, name: str, good: Good, expected: dict[str, Any]) -> tuple[str, str]:
    """Read all of a damaged run, as a script or a report does."""
    outcome, result = _attempt(lambda: numbers(copy), name)
    if outcome != "returned":
        return outcome, str(result)
    differing = [key for key in expected if result.get(key) != expected[key]]
    if not differing:
        return "harmless", ""
    if not result["finished"] and not set(differing) - {"finished", "result", "model", "summary"}:
        return "named", ""  # without its result.json it is reported as unfinished
    return "lost", f"other values of {differing}"


def resume_again(copy: Path, name: str, good: Good, expected: dict[str, Any]) -> tuple[str, str]:
    """Resume a damaged run. Where that is refused, it must succeed after the file is restored."""
    outcome, result = _attempt(lambda: dragfl.resume(copy), name)
    if outcome == "lost":
        return outcome, str(result)
    if outcome == "named":
        shutil.copy(good.run / name, copy / name)
        outcome, result = _attempt(lambda: dragfl.resume(copy), name)
        problem = str(result) if outcome != "returned" else difference(copy, good.whole)
        return ("lost", f"refused, but after the file was restored: {problem}") if problem else ("named", "")
    problem = difference(copy, good.whole)
    if problem:
        return "lost", problem
    return ("harmless" if (good.run / RESULT).exists() else "same_bytes"), ""


def _attempt(work: Callable[[], Any], name: str) -> tuple[str, Any]:
    """("returned", value), ("named", the error) or ("lost", what happened)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "returned", work()
    except DragflError as error:
        text = str(error)  # where two files do not match, it may name the other one
        named = name in text or MISMATCH in text
        return ("named", error) if named else ("lost", f"{error!r} does not name the file")
    except Exception as error:
        return "lost", f"raised {error!r}"
