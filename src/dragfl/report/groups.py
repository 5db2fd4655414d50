"""Finding run directories, and putting those that differ only by seed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragfl.errors import SpecError
from dragfl.report import labels
from dragfl.runs.directory import SPEC, Run, load_run

RunLike = Run | Path | str

# These never change what is computed, so runs that differ in them are still repeats of one another.
_SAME_RESULT = ("seed", "name", "checkpoint.", "engine.workers", "engine.executor")


@dataclass(frozen=True)
class Group:
    """Runs of one experiment under one or several seeds."""

    algorithm: str  # "BR-DRAG"
    against: str  # "sign_flip", "no attack", or "" where that does not tell it apart
    settings: str  # what else does: "c=0.5", or ""
    runs: tuple[Run, ...]  # by seed

    @property
    def label(self) -> str:
        """The name that is unique among the groups of a report: "BR-DRAG · sign_flip"."""
        return labels.SEPARATOR.join(filter(None, (self.algorithm, self.against, self.settings)))

    @property
    def short(self) -> str:
        """The label among groups under the same attack."""
        return labels.SEPARATOR.join(filter(None, (self.algorithm, self.settings)))

    @property
    def spec(self) -> dict[str, Any]:
        """The settings all runs of the group share (the seed is the first run's)."""
        return self.runs[0].spec

    @property
    def attack(self) -> str | None:
        return labels.attack(self.spec)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed(run) for run in self.runs)


def seed(run: Run) -> int:
    return int(run.spec.get("seed", 0))


def find_runs(runs: RunLike | Sequence[RunLike]) -> list[Run]:
    """Every run given, each once: run directories, `Run`s, and folders that hold run directories at any depth."""
    items = [runs] if isinstance(runs, (Run, Path, str)) else list(runs)
    found: dict[Path, Run] = {}
    for item in items:
        if not isinstance(item, Run) and not Path(item).exists():
            raise SpecError(f"report: {item}: no such folder; give run directories, or folders that hold some")
        for run in [item] if isinstance(item, Run) else _at(Path(item)):
            found.setdefault(run.path.resolve(), run)
    if not found:
        looked = ", ".join(str(item) for item in items) or "nothing"
        raise SpecError(
            f"report: no run found in {looked}; looked for folders holding {SPEC}, at any depth: "
            "give a folder that `dragfl run` made, or one that holds such folders"
        )
    return list(found.values())


def _at(path: Path) -> list[Run]:
    if (path / SPEC).is_file():
        return [load_run(path)]
    return [load_run(spec.parent) for spec in sorted(path.rglob(SPEC))] if path.is_dir() else []


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order in which their first run was given, with labels that tell them apart.

    Two runs of one experiment *and* one seed are not two samples. They are kept apart, by name or else by folder.
    """
    buckets = _split(list(runs), _experiment)
    for apart in (lambda run: run.name, lambda run: str(run.path)):
        buckets = [part for bucket in buckets for part in (_split(bucket, apart) if _repeats(bucket) else [bucket])]
    folders = [bucket[0].path for bucket in buckets]
    brief = len({path.name for path in folders}) == len(folders)
    specs = [
        {**bucket[0].spec, "folder": path.name if brief else str(path)}
        for bucket, path in zip(buckets, folders, strict=True)
    ]
    named = labels.labels(specs)
    return [Group(*name, tuple(sorted(bucket, key=seed))) for bucket, name in zip(buckets, named, strict=True)]


def _experiment(run: Run) -> str:
    """What the run computes, whatever its seed."""
    flat = labels.flatten(run.spec)
    return repr(sorted((k, labels.text(v)) for k, v in flat.items() if not k.startswith(_SAME_RESULT)))


def _split(runs: Sequence[Run], key: Callable[[Run], str]) -> list[list[Run]]:
    parts: dict[str, list[Run]] = {}
    for run in runs:
        parts.setdefault(key(run), []).append(run)
    return list(parts.values())


def _repeats(runs: Sequence[Run]) -> bool:
    return len({seed(run) for run in runs}) < len(runs)
