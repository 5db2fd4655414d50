"""Help, list and spec errors are fast: they never import torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import python

ANSWER = """
import sys
from dragfl.cli import main
try:
    code = main({arguments!r})
except SystemExit as error:
    code = error.code
print("code", code, "torch", "torch" in sys.modules, file=sys.__stdout__)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        ([], 0),
        (["rnu"], 2),
        (["run", "small.toml", "--outt", "x"], 2),
        (["list"], 0),
        (["list", "drag"], 0),
        (["schema"], 0),
        (["init"], 0),
        (["completion", "bash"], 0),
        (["run", "nowhere.toml"], 2),
        (["run", "small.toml", "clients.lr=-1"], 2),
        (["run", "small.toml", "algorithm.name=darg"], 2),
        (["run", "small.toml", "--dry-run"], 0),
        (["resume", "nowhere"], 6),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)  # fmt: skip
def test_without_torch(tmp_path: Path, digits_toml: Path, arguments: list[str], code: int) -> None:
    printed = python(ANSWER.format(arguments=arguments), tmp_path)
    assert printed.splitlines()[-1] == f"code {code} torch False"


def test_resume_of_a_finished_run_without_torch(tmp_path: Path, digits_toml: Path) -> None:
    import dragfl

    dragfl.run(dragfl.load(digits_toml, "rounds=1"), tmp_path / "r")
    printed = python(ANSWER.format(arguments=["resume", "r"]), tmp_path)
    assert printed.splitlines()[0] == "already finished, nothing to run"
    assert printed.splitlines()[-1] == "code 0 torch False"
