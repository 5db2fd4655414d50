"""Keys and names of version 0.1 that have new names, and the rewriting of files that hold them.

`resolve` refuses old keys with `refuse_old_keys`; readers of stored runs translate them with `rename_keys`; `dragfl
migrate` rewrites files with `migrate_file`.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragfl.config.locate import not_toml
from dragfl.errors import SpecError

# The owner is a table of the spec, or the name of a part or preset whose setting it is: owner -> old key -> new key.
OLD_KEYS: dict[str, dict[str, str]] = {
    "attack": {"share": "fraction", "among": "counted_in"},
    "root": {"from": "source", "clean": "filter", "favourite": "biased_class"},
    "evaluation": {"block": "batch_size"},
    "state": {"lost": "on_missing"},
    "fools_gold": {"on_all_alike": "on_identical"},
    "sign_guard": {"share": "fraction"},
    "label_flip": {"fraction": "sample_fraction", "how": "mode"},
    "dynamic_label_flip": {"fraction": "sample_fraction"},
    "backdoor": {"fraction": "sample_fraction"},
    "gaussian": {"how": "mode"},
    "non_finite": {"where": "coordinates"},
    "fang_krum": {"least": "min_lambda"},
}
REMOVED_KEYS = {"adabest": "report", "extrapolate": "report"}  # owner -> key; evaluation.iterate replaces it
OLD_NAMES: dict[str, dict[str, str]] = {  # part of an algorithm -> old name -> new name
    "correction": {"dragfl.paper.shared_variate:SharedVariate": "dragfl.reproduction.parts:SharedVariateScaffold"},
    "aggregate": {
        "dragfl.paper.root_only:RootOnly": "root_only",
        "dragfl.reproduction.parts:RootOnly": "root_only",
    },
    "server": {
        "extrapolate": "adabest",
        "last_two": "sgd",  # the model to evaluate is now evaluation.iterate
        "dragfl.paper.from_zero:FromZero": "dragfl.reproduction.parts:AdaBestFromZero",
    },
}
OLD_STATE_FILE, STATE_FILE = "clients.slab", "client_states.bin"  # in a run directory

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Change:
    """A key at `path` with a new name, None if it was removed; or, with `is_value`, a new value at `path`."""

    path: KeyPath
    new: Any
    is_value: bool = False

    @property
    def new_text(self) -> str:
        if self.new is None:
            return "removed; evaluation.iterate chooses the evaluated model"
        return f"{dotted(self.path)} = {json.dumps(self.new)}" if self.is_value else dotted((*self.path[:-1], self.new))

    def __str__(self) -> str:
        return f"{dotted(self.path)} -> {self.new_text}"


def dotted(path: KeyPath) -> str:
    """`algorithm.aggregate.chain[1].share`"""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def find_old_keys(tables: Mapping[str, Any]) -> list[Change]:
    """Every old key and name in the tables of a spec, in the order in which they can be renamed one by one."""
    found: list[Change] = []
    for path, table in _inner_tables((), tables):
        owners = [owner for owner in (table.get("name"), path[-1]) if isinstance(owner, str)]
        for owner, key in itertools.product(owners, table):
            # In 0.1 a `fraction` of poisoned samples always came with `share` or `attackers`, the number of attackers.
            today = path == ("attack",) and key == "fraction" and not table.keys() & {"share", "attackers"}
            # 0.1 wrote no `forge_extras`: here `share` is a setting of the user's own attack.
            today |= path == ("attack",) and ":" in str(table.get("name")) and "forge_extras" in table
            if key in OLD_KEYS.get(owner, {}) and not today:
                found.append(Change((*path, key), OLD_KEYS[owner][key]))
            if key == REMOVED_KEYS.get(owner):
                found.append(Change((*path, key), None))
        for key, value in table.items():
            names = OLD_NAMES.get(str(path[-1]) if key == "name" else key, {})
            if isinstance(value, str) and value in names:
                found.append(Change((*path, key), names[value], is_value=True))
    return found


def _inner_tables(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """Every table inside a value at `path`, with its own path; the outer ones first."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner in items:
        if isinstance(inner, Mapping):
            yield (*path, key), inner
        yield from _inner_tables((*path, key), inner)


def refuse_old_keys(tables: Mapping[str, Any]) -> None:
    """Raise where a key or a name is one of version 0.1; the error has the new one."""
    for change in find_old_keys(tables):
        what = change.new_text if change.new is None else f"has a new name since version 0.1; write {change.new_text}"
        raise SpecError(f"{dotted(change.path)}: {what} (dragfl migrate FILE rewrites a file)")


def rename_keys(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with new names for old keys. Tables without old keys are returned unchanged.

    The resolved spec of a 0.1 run also gets `attack.forge_extras = false`, since attackers of 0.1 forged no extras, and
    `evaluation.iterate = "own"` where 0.1 evaluated an average of models.
    """
    renamed = dict(tables)
    for change in find_changes(tables):
        renamed = apply_change(renamed, change)
    return renamed


def rename_override(text: str) -> str:
    """`root.from=test` -> `root.source=test`; any other override, also of a removed key, unchanged."""
    key, equals, value = text.partition("=")
    *parents, last = key.strip().split(".")
    table: Any = {last: value.strip()}
    for parent in reversed(parents):
        table = {parent: table}
    for change in (change for change in find_old_keys(table) if change.new is not None):
        return f"{key}={change.new}" if change.is_value else f"{change.new_text}{equals}{value}"
    return text


def find_changes(tables: Mapping[str, Any]) -> list[Change]:
    """Everything that turns tables of 0.1 into tables of today."""
    changes = find_old_keys(tables)
    state, attack = tables.get("state"), tables.get("attack")
    resolved = isinstance(state, Mapping) and "lost" in state  # 0.1 wrote it in every resolved spec
    if resolved and isinstance(attack, Mapping) and "forge_extras" not in attack:
        changes.append(Change(("attack", "forge_extras"), False, is_value=True))
    algorithm = tables.get("algorithm")
    server = algorithm.get("server") if resolved and isinstance(algorithm, Mapping) else None
    averaged = isinstance(server, Mapping) and server.get("report", server.get("name")) in ("average", "last_two")
    if averaged and "evaluation" in tables:
        changes.append(Change(("evaluation", "iterate"), "own", is_value=True))
    return changes


def apply_change(tables: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """A copy of the tables with one change made; the order of keys stays."""
    *parents, last = change.path
    changed = copy.deepcopy(dict(tables))
    table: Any = changed
    for key in parents:
        table = table[key]
    if change.is_value:
        table[last] = change.new
        return changed
    items = [(change.new if key == last else key, value) for key, value in table.items()]
    items = [(key, value) for key, value in items if key is not None]
    table.clear()
    table.update(items)
    return changed


def migrate_text(text: str) -> tuple[str, list[Change]]:
    """A TOML spec of 0.1 with new keys, comments and layout kept, and what was changed.

    Each change replaces one place in the text. It is accepted if the parsed text then differs from before in exactly
    that change, so a comment or a string that looks like a key is never touched.
    """
    tables = tomllib.loads(text)
    changes = find_changes(tables)
    for change in changes:
        tables = apply_change(tables, change)
        text = _rewrite(text, change, tables)
    return text, changes


def _rewrite(text: str, change: Change, wanted: Mapping[str, Any]) -> str:
    for candidate in _candidates(text, change):
        try:
            if tomllib.loads(candidate) == wanted:
                return candidate
        except tomllib.TOMLDecodeError:
            continue
    raise SpecError(f"{dotted(change.path)}: cannot be rewritten here; change it by hand: {change}")


def _candidates(text: str, change: Change) -> Iterator[str]:
    """The text with the change made at each place that could be meant."""
    old = re.escape(str(change.path[-1]))
    if change.new is None:
        for place in re.finditer(rf"(?m)^[ \t]*{old}[ \t]*=.*\n|,[ \t]*{old}[ \t]*=[ \t]*[\"'][^\"']*[\"']", text):
            yield text[: place.start()] + text[place.end() :]
        return
    if not change.is_value:
        for place in re.finditer(rf"(?<![\w-])(?P<quote>[\"']?){old}(?P=quote)(?=\s*=)", text):
            yield text[: place.start()] + change.new + text[place.end() :]
        return
    names = "|".join(re.escape(name) for names in OLD_NAMES.values() for name in names)
    for place in re.finditer(rf"(?P<quote>[\"'])(?:{names})(?P=quote)", text):
        yield text[: place.start()] + json.dumps(change.new) + text[place.end() :]
    header = re.escape(dotted(change.path[:-1]))
    for place in re.finditer(rf"(?m)^[ \t]*\[[ \t]*{header}[ \t]*\].*$", text):  # a new key below its header
        yield f"{text[: place.end()]}\n{change.path[-1]} = {json.dumps(change.new)}{text[place.end() :]}"


def migrate_path(path: Path) -> dict[Path, list[Change]]:
    """Rewrite a spec file, or every spec below a run, sweep or arena directory; the old file is kept as FILE.bak.

    A file of client states in the same directory gets its new name.
    All files are read and checked before the first one is written. Returns what was changed in each file.
    """
    rewritten: dict[Path, tuple[str, str, list[Change]]] = {}
    for file in _spec_files(path):
        try:
            before = file.read_text()
            after, changes = migrate_text(before)
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"{not_toml(file, before, error)}; nothing was written") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{file}: cannot be read ({error}); give a TOML file; nothing was written") from None
        except SpecError as error:
            raise SpecError(f"{file}: {error}; nothing was written") from None
        if changes and _backup(file).exists():
            raise SpecError(f"{file}: the backup {_backup(file).name} exists already; move it; nothing was written")
        if changes:
            rewritten[file] = before, after, changes
    for file, (before, after, _) in rewritten.items():
        temporary = file.with_name(f"{file.name}.tmp")
        try:
            _backup(file).write_text(before)
            temporary.write_text(after)
            if file.with_name(OLD_STATE_FILE).exists():
                file.with_name(OLD_STATE_FILE).replace(file.with_name(STATE_FILE))
            temporary.replace(file)
        except OSError as error:
            raise SpecError(f"{file}: cannot be written ({error.strerror}); the file is unchanged") from None
    return {file: changes for file, (_, _, changes) in rewritten.items()}


def _backup(file: Path) -> Path:
    return file.with_name(f"{file.name}.bak")


def _spec_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SpecError(f"{path}: no such file or directory; give a TOML experiment or a run directory")
    found = sorted(path.rglob("spec.toml"))
    if not found:
        raise SpecError(f"{path}: holds no spec.toml; give a TOML experiment, or a directory that `dragfl run` made")
    return found
