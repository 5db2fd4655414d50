"""A new aggregate, correction or attack is one file and one registry line; everything else derives from the class.

The test copies the package, adds one of each and checks the listing, the documentation table, a run and an arena.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dragfl
from tests.conftest import TIMEOUT_S

AGGREGATE = '''
from dataclasses import dataclass
from typing import ClassVar

from dragfl.aggregates.robust.contract import any_number
from dragfl.aggregates.robust.ordering import each_column
from dragfl.aggregates.robust.rule import robust_rule


@dataclass(frozen=True)
class Midrange:
    """Takes the middle between the least and the largest value of every coordinate."""

    name: ClassVar[str] = "midrange"
    paper: ClassVar[str] = "Somebody et al. 2031"
    least = any_number
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule

    def columns(self, chunk, f):
        return (chunk.amin(0) + chunk.amax(0)) / 2
'''

CORRECTION = '''
from dataclasses import dataclass
from typing import ClassVar

from dragfl.corrections.none import no_needs, nothing_kept, nothing_sent, step_unchanged
from dragfl.types import Affine, no_state


@dataclass(frozen=True)
class Damped:
    """Scales every local gradient.

    | argument | symbol |
    |---|---|
    | rho | rho in (0, 1] |
    """

    rho: float = 0.5
    paper: ClassVar[str] = "Somebody et al. 2032"
    fields: ClassVar[dict] = {}
    sends: ClassVar[dict] = {}
    init, needs, broadcast = no_state, no_needs, nothing_sent
    client_finish, server_finish = nothing_kept, step_unchanged

    def affine(self, mine, sent, context):
        return Affine(scale=self.rho)
'''

ATTACK = '''
from dataclasses import dataclass, replace
from typing import ClassVar

from dragfl.types import no_state


@dataclass(frozen=True)
class Doubling:
    """Sends twice the update."""

    knowledge: ClassVar[str] = "own"
    init = no_state

    def craft(self, state, view, context):
        return replace(view.own, delta=2.0 * view.own.delta), state
'''

CHECK = """
import sys
from pathlib import Path

import numpy as np

import dragfl

from dragfl.cli import main, parts_table
from dragfl.report.labels import make_labels

assert main(["list"]) == 0
assert "torch" not in sys.modules
page = parts_table.markdown()
assert "| `midrange` | Somebody et al. 2031 | none × midrange × sgd | 1/1 |" in page
assert "| `damped` | `rho` | 0.5 | rho in (0, 1] |" in page
assert ("doubling", "Sends twice the update.", "") in parts_table.list_rows("attacks")

small = {"rounds": 1, "clients": {"total": 5, "local_steps": 1}, "model": {"name": "logistic"}}
spec = {**small, "algorithm": {"name": "damped", "rho": 0.25, "aggregate": "midrange"}}
run = dragfl.run(dragfl.load({**spec, "attack": {"name": "doubling", "attackers": 1}}), Path("run"))
assert run is not None
from dragfl import functional
assert functional.aggregate("midrange", np.array([[0.0, 1.0], [4.0, 2.0], [1.0, 9.0]])).tolist() == [2.0, 5.0]
dragfl.arena(small, defences=["midrange", "damped"], attacks=["doubling"], out="arena")
print("LABEL", *make_labels([dragfl.load(spec).tables()], [""])[0])
"""


def add_line(file: Path, after: str, line: str) -> None:
    text = file.read_text()
    assert after in text
    file.write_text(text.replace(after, after + line, 1))


def test_a_file_and_a_registry_line_are_enough(tmp_path: Path) -> None:
    package = tmp_path / "src" / "dragfl"
    shutil.copytree(Path(dragfl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "aggregates" / "robust" / "midrange.py").write_text(AGGREGATE)
    (package / "corrections" / "damped.py").write_text(CORRECTION)
    (package / "attacks" / "doubling.py").write_text(ATTACK)
    for registry, start, name, kind in (
        ("aggregates/robust", "ROBUST = {", "midrange", "Midrange"),
        ("corrections", "CORRECTIONS = {", "damped", "Damped"),
        ("attacks", "ATTACKS: dict[str, Any] = {", "doubling", "Doubling"),
    ):
        file = package / registry / "__init__.py"
        module = f"dragfl.{registry.replace('/', '.')}.{name}"
        add_line(file, start, f'\n    "{name}": {kind},')
        file.write_text(f"from {module} import {kind}\n" + file.read_text())
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("midrange", "damped", "doubling"):
        assert name in done.stdout
    assert "LABEL damped+midrange" in done.stdout
