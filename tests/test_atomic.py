"""Atomic file writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dragfl import atomic
from dragfl.errors import Interrupted


def test_no_space_left(tmp_path: Path) -> None:
    """/dev/full refuses every byte, like a full disk."""
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
