"""The Flower app of a spec builds with the real `flwr build`, and the archive holds the spec."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from dragfl.flower.app_files import app_name, write_app

SPEC = 'name = "small"\nrounds = 2\n'


def test_flwr_build_accepts_the_app_and_packs_the_spec(tmp_path: Path) -> None:
    write_app(tmp_path / "app", SPEC, "small", run_dir="/runs/small")
    (tmp_path / "app" / "my_rules.py").write_text("x = 1\n")
    flwr = Path(sys.executable).with_name("flwr")
    environment = os.environ | {"FLWR_HOME": str(tmp_path / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
    build = [flwr, "build", "--app", tmp_path / "app"]
    done = subprocess.run(build, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(archive) as fab:
        assert fab.read("dragfl_app/spec.toml").decode() == SPEC
        assert {"dragfl_app/server_app.py", "dragfl_app/client_app.py", "my_rules.py"} <= set(fab.namelist())
        app = tomllib.loads(fab.read("pyproject.toml").decode())["tool"]["flwr"]["app"]
    assert app["config"] == {"run-dir": "/runs/small", "overrides": "", "log": ""}
    assert app["components"] == {"serverapp": "dragfl_app.server_app:app", "clientapp": "dragfl_app.client_app:app"}


def test_an_existing_app_is_not_overwritten(tmp_path: Path) -> None:
    write_app(tmp_path / "app", SPEC, "small")
    with pytest.raises(FileExistsError):
        write_app(tmp_path / "app", "", "other")
    assert (tmp_path / "app" / "dragfl_app" / "spec.toml").read_text() == SPEC


@pytest.mark.parametrize(
    ("name", "expected"),
    [("small", "small"), ("my run_2", "my-run-2"), ("2024", "run-2024"), ("_", "run"), ("a" * 31 + "-b", "a" * 31)],
)
def test_the_name_of_an_app_follows_flowers_rules(name: str, expected: str) -> None:
    assert app_name(name) == expected
