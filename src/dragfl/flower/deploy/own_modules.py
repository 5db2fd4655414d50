"""The user's own modules that a spec names as `module:attr`: which ones, and which of them the app must hold.

Modules in the current folder or in that of the spec are copied into the app, with the modules there that they import.
All others are taken to be installed, and must be on the server and on every node.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragfl.data import FILE_KINDS
from dragfl.errors import SpecError
from dragfl.flower.app_files import packed_files
from dragfl.own_code import refuses_own_code

_NAMED = re.compile(r"(?<![\w.:/])([A-Za-z_][\w.]*):[A-Za-z_]\w*")
_LEFT_OUT = "Flower sends no files named test_*.py or *_test.py, and none from folders such as build or lib"


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Import modules from this folder too, except in safe mode; the current folder comes first."""
    if refuses_own_code():
        yield
        return
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def named_modules(tables: Any) -> set[str]:
    """The top-level names of the modules that a spec names."""
    if isinstance(tables, Mapping):
        return set().union(*(named_modules(item) for pair in tables.items() for item in pair))
    if isinstance(tables, list | tuple):
        return set().union(*map(named_modules, tables))
    if not isinstance(tables, str):
        return set()
    return {name.split(".")[0] for name in _NAMED.findall(tables) if name not in FILE_KINDS}


def local_modules(names: set[str], beside: Path) -> dict[str, Path]:
    """Name -> file or package folder of the modules in these folders, with the modules there that they import."""
    folders = list(dict.fromkeys([Path.cwd().resolve(), beside.resolve()]))
    found: dict[str, Path] = {}
    waiting = sorted(names)
    while waiting:
        name = waiting.pop()
        home = _local_home(name, folders)
        if home is None or name in found:
            continue
        found[name] = home
        for file in [home] if home.is_file() else sorted(home.rglob("*.py")):
            waiting += _imported(file)
    return dict(sorted(found.items()))


def copy_modules(modules: Mapping[str, Path], app: Path) -> None:
    """Copy modules to the root of an app, and make sure that Flower packs every file of them."""
    for name, source in modules.items():
        if (app / source.name).exists():
            raise SpecError(f"module '{name}': the app has a folder of this name; rename the module")
        if source.is_file():
            shutil.copyfile(source, app / source.name)
        else:
            for file in sorted(source.rglob("*.py")):
                target = app / name / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    if modules:
        copied = {str(path.relative_to(app)) for path in app.rglob("*.py")}
        if missing := sorted(copied - packed_files(app)):
            raise SpecError(f"{', '.join(missing)}: not sent to the nodes: {_LEFT_OUT}; rename it")


def _local_home(name: str, folders: list[Path]) -> Path | None:
    """Where a module is, if it is in one of the folders and not installed in an environment below them."""
    for folder in folders:
        for path in (folder / f"{name}.py", folder / name):
            if path.is_file() or (path / "__init__.py").is_file():
                return path
    return None


def _imported(file: Path) -> list[str]:
    """The top-level names that a file imports anywhere."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module.split(".")[0])
    return found
