"""Group runs that differ only in their seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from dragfl.errors import DamagedRun
from dragfl.report import labels
from dragfl.runs.directory import Run

SHORT = 6  # characters of a digest in a label


@dataclass(frozen=True)
class Group:
    """Runs of one experiment with one or several seeds."""

    algorithm: str  # "br_drag"
    attack_label: str  # "sign_flip", "no attack", or "" where all groups share it
    settings: str  # other settings that distinguish the group: "c=0.5", or ""
    runs: tuple[Run, ...]  # in order of their seeds
    label_name: str = ""  # the name that the user gave, or "" where all groups share it
    name_has_algorithm: bool = False  # so the label does not repeat the algorithm

    @property
    def label(self) -> str:
        """The label that is unique among the groups of a report: "br_drag · sign_flip"."""
        return str(self._label)

    @property
    def label_within_attack(self) -> str:
        """The label that is unique among groups with the same attack."""
        return self._label.without_attack()

    @property
    def _label(self) -> labels.Label:
        shown = self.algorithm, self.attack_label, self.settings
        return labels.Label(*shown, self.label_name, self.name_has_algorithm)

    @property
    def name(self) -> str:
        """The name that the user gave to the runs, or ""."""
        return name_of_runs(self.runs)

    @property
    def spec(self) -> dict[str, Any]:
        """The settings that all runs of the group share (the seed is that of the first run)."""
        return self.runs[0].spec

    @property
    def attack(self) -> str | None:
        return labels.attack_name(self.spec)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed_of(run) for run in self.runs)


def seed_of(run: Run) -> int:
    return int(run.spec.get("seed", 0))


def shared_value(runs: Sequence[Run], key: str) -> Any:
    """The value of a dotted setting if all runs have the same one, else None."""
    values = [labels.flatten(run.spec).get(key) for run in runs]
    return values[0] if values and all(value == values[0] for value in values) else None


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups with unique labels, in the order of their first runs.

    Two runs of one experiment with the same seed are not independent samples. They form separate groups, by the
    name of the algorithm, the folder they are in, their names, or else their own folders.
    """
    groups = [part for group in _split(list(runs), _experiment_key) for part in _split_by_fingerprint(group)]
    keys: tuple[Callable[[Run], str], ...] = (
        lambda run: labels.algorithm_name(run.spec),
        lambda run: str(run.path.parent),
        lambda run: run.name,
        lambda run: str(run.path),
    )
    for key in keys:
        groups = [part for group in groups for part in (_split(group, key) if _repeats_a_seed(group) else [group])]
    folders = [group[0].path if len(group) == 1 else group[0].path.parent for group in groups]
    short = len({path.name for path in folders}) == len(folders)
    specs = [
        {**group[0].spec, labels.FINGERPRINT: _short_digests(group), "folder": path.name if short else str(path)}
        for group, path in zip(groups, folders, strict=True)
    ]
    named = labels.make_labels(specs, [name_of_runs(group) for group in groups])
    return [
        Group(*label[:3], tuple(sorted(group, key=seed_of)), *label[3:])
        for group, label in zip(groups, named, strict=True)
    ]


def name_of_runs(runs: Sequence[Run]) -> str:
    """The name that the user gave to runs that differ in their seed, or ""."""
    ordered = sorted(runs, key=seed_of)
    return labels.given_name([run.name for run in ordered], [seed_of(run) for run in ordered])


def _experiment_key(run: Run) -> str:
    """All settings that change the result, apart from the seed."""
    flat = labels.flatten(run.result_settings)
    return repr(sorted((k, labels.format_value(v)) for k, v in flat.items() if k != "seed"))


def _split_by_fingerprint(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs with different data, model or code are different experiments. Initial weights differ by seed.

    Runs of older versions have no fingerprints; they stay together with the others if these agree.
    """
    bytecode = len({str(run.info.get("python")).rpartition(".")[0] for run in runs if fingerprints(run)}) == 1
    keys = {run.path: json.dumps(fingerprints(run, bytecode=bytecode)) for run in runs}
    known = set(keys.values()) - {json.dumps({})}
    return _split(runs, lambda run: keys[run.path]) if len(known) > 1 else [list(runs)]


def fingerprints(run: Run, *, bytecode: bool = True) -> dict[str, str]:
    """The digests of data, model and code of a run; empty if it has none.

    The code of own parts is that of their files and, if `bytecode`, the loaded one, which differs by version of Python.
    """
    try:
        found = run.info.get("fingerprints")
    except DamagedRun:  # no run.json
        found = None
    if not found:
        return {}
    code = {
        key: part if bytecode or not part.get("files") else part["files"] for key, part in found.get("code", {}).items()
    }
    digest = {"code": blake2b(json.dumps(code, sort_keys=True).encode()).hexdigest()} if code else {}
    return {key: str(found.get(key)) for key in ("data", "model")} | digest


def _short_digests(runs: Sequence[Run]) -> dict[str, str]:
    """For a label: the digests of the first run that has some."""
    digests = next(filter(None, map(fingerprints, runs)), {})
    return {key: digest[:SHORT] for key, digest in digests.items()}


def _split(runs: Sequence[Run], key: Callable[[Run], str]) -> list[list[Run]]:
    parts: dict[str, list[Run]] = {}
    for run in runs:
        parts.setdefault(key(run), []).append(run)
    return list(parts.values())


def _repeats_a_seed(runs: Sequence[Run]) -> bool:
    return len({seed_of(run) for run in runs}) < len(runs)
