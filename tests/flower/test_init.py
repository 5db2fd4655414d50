"""`dragfl.flower` asks for flwr, and `import dragfl` does not."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

import dragfl.flower
from dragfl.errors import DragflWarning, SpecError


def test_import_dragfl_does_not_import_flwr() -> None:
    code = "import dragfl.cli, sys; dragfl.cli.parser(); sys.exit(any(m.startswith('flwr') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_untested_version_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dragfl.flower, "version", lambda name: "1.99.0")
    with pytest.warns(DragflWarning, match=r"flwr 1\.99\.0: not tested"):
        dragfl.flower._check_version()


def test_a_missing_flwr_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(dragfl.flower, "version", missing)
    with pytest.raises(SpecError, match=r"pip install 'dragfl\[flower\]'"):
        dragfl.flower._check_version()
