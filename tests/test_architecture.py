"""docs/architecture.md draws the imports; this test walks every file and accepts nothing else.

Imports inside functions and under TYPE_CHECKING count. A file may import its own package and the foundations; every
other import needs a cell in the table "Packages". There is no cycle between files.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dragfl"
NAME = re.compile(r"`([\w./]+(?:/|\.py))`")


@cache
def files() -> dict[str, Path]:
    """Module name -> file, for every file of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["dragfl", *path.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(files()[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in files() else str(node.module) for name in names}
    return frozenset(name for name in found if name in files() and name != module)


def top(path: Path) -> str:
    """`aggregates/` for a file of that package, `build.py` for a file at the top."""
    first = path.relative_to(PACKAGE).parts[0]
    return f"{first}/" if (PACKAGE / first).is_dir() else first


def table() -> list[list[str]]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    lines = [
        line for line in text.partition("## Packages")[2].partition("## A round")[0].splitlines() if line[:1] == "|"
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def foundations() -> list[str]:
    return NAME.findall(next(row[1] for row in table() if row[0] == "foundations"))


def allowed() -> dict[str, list[str]]:
    """Package -> the cells of its row: packages, files, or "everything"."""
    found = {}
    for names, _, cells in table():
        for name in NAME.findall(names):
            found[name] = ["everything"] if cells == "everything" else NAME.findall(cells)
    return found


def test_the_table_names_every_package() -> None:
    assert sorted([*foundations(), *allowed()]) == sorted({top(path) for path in files().values()})


@pytest.mark.parametrize("module", files())
def test_a_file_imports_only_what_the_table_draws(module: str) -> None:
    mine = top(files()[module])
    for other in imports(module):
        path = files()[other]
        theirs, file = top(path), str(path.relative_to(PACKAGE))
        if mine in foundations():
            order = foundations()
            assert theirs in order and order.index(theirs) < order.index(mine), f"{module} imports {other}"
        elif theirs != mine and theirs not in foundations():
            cells = allowed()[mine]
            assert "everything" in cells or theirs in cells or file in cells, f"{module} imports {other}"


def test_only_the_command_line_is_above_the_command_line() -> None:
    above = [module for module in files() if any(name.startswith("dragfl.cli") for name in imports(module))]
    assert all(module.startswith("dragfl.cli") or module == "dragfl.__main__" for module in above)


def test_there_is_no_import_cycle() -> None:
    graph = {module: imports(module) for module in files()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_there_is_no_cycle_between_packages() -> None:
    """Files of a package count as the package, and foundations as one."""

    def package(module: str) -> str:
        name = top(files()[module])
        return "foundations" if name in foundations() else name

    graph: dict[str, set[str]] = {}
    for module in files():
        graph.setdefault(package(module), set()).update(package(other) for other in imports(module))
    for name, others in graph.items():
        others.discard(name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("module", ["dragfl.config.spec", "dragfl.algorithms", "dragfl.runs.directory", "dragfl.cli"])
def test_torch_is_not_imported(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=TIMEOUT_S).returncode == 0


def test_the_page_fits_two_screens() -> None:
    assert len((ROOT / "docs" / "architecture.md").read_text().splitlines()) <= 110


def test_only_the_package_flower_imports_flwr() -> None:
    pattern = re.compile(r"^\s*(?:import|from) flwr\b", re.MULTILINE)
    found = {module for module, path in files().items() if pattern.search(path.read_text())}
    assert all(module.startswith("dragfl.flower") for module in found), sorted(found)
