"""One secure deployment, written once; each test gets a copy that it may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dragfl.flower import deploy
from tests.flower.deploy.installed import BIN, two_free_ports

SCAFFOLD = """
name = "small"
rounds = 2
[clients]
total = 3
[algorithm]
name = "scaffold"
[model]
name = "logistic"
"""


@pytest.fixture(autouse=True)
def _programs_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(BIN), prepend=":")


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment of SCAFFOLD, whose clients keep state, on fl.invalid, a name that never resolves."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "spec.toml").write_text(SCAFFOLD)
    return deploy.init(folder / "d", folder / "spec.toml", hosts=["fl.invalid"], port=two_free_ports())


@pytest.fixture
def deployment(written: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "d"
    shutil.copytree(written, copy)
    config = copy / "operator" / "config.toml"
    config.write_text(config.read_text().replace(str(written), str(copy)))
    return copy
