"""`--safe`: a spec that names code to import is refused by every command, before anything is imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main
from dragfl.errors import Interrupted, SpecError
from tests.conftest import TIMEOUT_S

MODULE = """
from pathlib import Path

Path("imported").touch()


def middle(updates):
    return (updates.amin(0) + updates.amax(0)) / 2
"""
SPEC = """
name = "safe"
rounds = 2
[clients]
total = 4
local_steps = 1
[model]
name = "logistic"
[checkpoint]
every = 1
"""
KEYS = {
    "data.dataset": ("data.dataset=foreign_x:data", "data.dataset"),
    "partition": ("data.partition=foreign_x:cut", "data.partition.kind"),
    "algorithm": ("algorithm.name=foreign_x:middle", "algorithm.name"),
    "aggregate": ("algorithm.aggregate=foreign_x:middle", "algorithm.aggregate.name"),
    "correction": ("algorithm.correction=foreign_x:middle", "algorithm.correction.name"),
    "server step": ("algorithm.server=foreign_x:middle", "algorithm.server.name"),
    "chain": ('algorithm.aggregate={chain=["nnm","foreign_x:middle"]}', "algorithm.aggregate.chain[1].name"),
    "attack": ('attack={name="foreign_x:middle",attackers=1}', "attack.name"),
    "model": ("model.name=foreign_x:middle", "model.name"),
    "augmentation": ("clients.augment=foreign_x:middle", "clients.augment"),
    "settings of a name": ("algorithms.foreign_x:middle.c=1", "algorithms.foreign_x:middle.name"),
}
OWN = "algorithm.aggregate=foreign_x:middle"
COMMANDS = {
    "run": ["run", "x.toml", OWN],
    "dry run": ["run", "x.toml", OWN, "--dry-run"],
    "sweep": ["sweep", "x.toml", OWN, "--out", "s"],
    "dry sweep": ["sweep", "x.toml", OWN, "--dry-run"],
    "arena": ["arena", "x.toml", "--defences", "foreign_x:middle", "--attacks", "sign_flip", "--fractions", "0.25"],
    "check": ["check", "foreign_x:middle"],
    "data show": ["data", "show", "own.toml", "--no-figures"],
    "deploy init": ["deploy", "init", "d", "--spec", "own.toml"],
    "doctor": ["doctor", "own.toml", "--deep"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "foreign_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    (tmp_path / "own.toml").write_text(SPEC + '[algorithm]\naggregate = "foreign_x:middle"\n')
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("foreign_x", None)


@pytest.mark.parametrize("kind", KEYS)
def test_every_key_from_python(kind: str) -> None:
    override, key = KEYS[kind]
    with pytest.raises(SpecError) as error:
        dragfl.load("x.toml", override, safe=True)
    assert f"{key}: 'foreign_x:" in str(error.value) and "not imported in safe mode" in str(error.value)
    assert not Path("imported").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS[name], "--safe"]) == 2
    printed = capsys.readouterr().err
    assert "'foreign_x:middle' names code outside dragfl" in printed and "--safe" in printed
    assert not Path("imported").exists()


def test_without_it_the_code_is_imported() -> None:
    dragfl.load("x.toml", OWN)
    assert Path("imported").exists()


def test_resume_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load("own.toml"), "r", should_stop=lambda: True)
    sys.modules.pop("foreign_x")
    Path("imported").unlink()
    assert main(["resume", "r", "--safe"]) == 2
    assert "algorithm.aggregate.name: 'foreign_x:middle' names code" in capsys.readouterr().err
    assert not Path("imported").exists()
    assert main(["resume", "r", "--quiet"]) == 0


def test_built_in_names_and_files_run() -> None:
    assert main(["run", "x.toml", "--safe", "--out", "r", "--quiet"]) == 0


def test_it_ends_with_the_command() -> None:
    main(["run", "x.toml", OWN, "--safe"])
    dragfl.load("x.toml", OWN)


def test_no_process_imports_from_the_current_folder(folder: Path) -> None:
    """A file named like a module of Python or a package is not imported, neither here nor by worker processes."""
    for name in ("torch", "numpy", "rich", "json", "socket", "fcntl", "sitecustomize", "safetensors", "tomllib"):
        (folder / f"{name}.py").write_text('open("imported", "w").close()\n')
    start = [sys.executable, "-P", "-m", "dragfl", "run", "x.toml", "engine.workers=2", "--safe", "--quiet"]
    subprocess.run(start, check=True, timeout=TIMEOUT_S)
    assert not Path("imported").exists()


def test_every_process_is_started_without_the_current_folder() -> None:
    """`-P` in each command that starts Python."""
    source = Path(dragfl.__file__).parent
    starts = [
        (path.name, line)
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if "[sys.executable, " in line
    ]
    assert len(starts) >= 4
    assert all('[sys.executable, "-P"' in line for _, line in starts), starts


def test_the_current_folder_on_the_path_of_modules(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend("")
    assert main(["run", "x.toml", "--safe"]) == 2
    assert "Python looks for modules in the current folder first" in capsys.readouterr().err


def test_ray(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x.toml", "--safe", "engine.executor=ray"]) == 2
    assert "engine.executor: 'ray' is not possible in safe mode" in capsys.readouterr().err


def test_symbolic_links_in_a_run_directory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that is a link would be written over a file of the user."""
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load("x.toml"), "r", should_stop=lambda: True)
    (folder / "precious").write_text("mine")
    (folder / "r/timing.jsonl").unlink()
    (folder / "r/timing.jsonl").symlink_to(folder / "precious")
    assert main(["resume", "r"]) == 2
    assert "r/timing.jsonl: is a symbolic link; replace it" in capsys.readouterr().err
    assert (folder / "precious").read_text() == "mine"


def test_control_characters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal obeys them; neither a spec nor a run directory may bring them."""
    (folder / "x.toml").write_text(SPEC.replace('"safe"', '"a\\u001b[31mb"'))
    assert main(["run", "x.toml"]) == 2
    assert "name: 'a\\x1b[31mb' holds control characters; remove them" in capsys.readouterr().err
    (folder / "r").mkdir()
    (folder / "r/spec.toml").write_text((folder / "x.toml").read_text())
    assert main(["report", "r"]) == 6
    assert "\x1b" not in capsys.readouterr().err
