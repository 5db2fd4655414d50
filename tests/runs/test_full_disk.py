"""A full disk: exit code 5, what could not be written, and a run that goes on to the same bytes when there is room.

A limit on the size of files stands in for the disk: writing beyond it fails just as writing to a full disk does.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

import dragfl
from dragfl import atomic
from dragfl.errors import Interrupted
from tests.conftest import kept_bytes, shell


def limited(size: int) -> dict[str, object]:
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.conftest import DIGITS

    folder = tmp_path_factory.mktemp("whole")
    (folder / "x.toml").write_text(DIGITS)
    return dragfl.run(dragfl.load(folder / "x.toml"), folder / "r").path


@pytest.mark.parametrize("part", ["checkpoint-00000004.safetensors", "metrics.jsonl"])
def test_out_of_room_and_resumed(digits_toml: Path, tmp_path: Path, whole: Path, part: str) -> None:
    """The limit is just below the checkpoint's tensors, or in the middle of the longest log."""
    sizes = {path.name: path.stat().st_size for path in whole.iterdir()}
    tensors = sizes["checkpoint-00000012.safetensors"]
    if part == "metrics.jsonl":
        overrides, limit = ["model.name=logistic", "rounds=60"], tensors + 100
    else:
        overrides, limit = [], tensors - 100
    run = tmp_path / "r"
    answer = shell("run", digits_toml, *overrides, "--out", run, cwd=tmp_path, **limited(limit))
    assert answer.returncode == 5, answer.stderr
    assert f"{part}: cannot be written, the file size limit is reached" in answer.stderr
    assert f"dragfl resume {run}" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not list(run.glob("*.tmp"))

    done = shell("resume", run, "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = whole if not overrides else dragfl.run(dragfl.load(digits_toml, *overrides), tmp_path / "w").path
    assert kept_bytes(run) == kept_bytes(expected)


def test_no_room_from_the_start(digits_toml: Path, tmp_path: Path) -> None:
    answer = shell("run", digits_toml, "--out", tmp_path / "r", cwd=tmp_path, **limited(50))
    assert answer.returncode == 5, answer.stderr
    assert "cannot be written" in answer.stderr
    assert "Traceback" not in answer.stderr
    again = shell("run", digits_toml, "--out", tmp_path / "r", "--quiet", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_no_space_left(tmp_path: Path) -> None:
    """/dev/full refuses every byte, as a full disk does."""
    (tmp_path / "x.json.tmp").symlink_to("/dev/full")
    with pytest.raises(Interrupted, match=r"x\.json: cannot be written, the disk is full; .* dragfl resume"):
        atomic.write_json(tmp_path / "x.json", {"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_survives_a_failed_write(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "x", "old")

    def fails(temporary: Path) -> None:
        temporary.write_text("new, but")
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        atomic.write_file(tmp_path / "x", fails)
    assert (tmp_path / "x").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
