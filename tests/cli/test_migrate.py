"""`dragfl migrate`: the messages and exit codes; what is rewritten is in tests/config/test_migrate.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragfl.cli import main

Capture = pytest.CaptureFixture[str]


def test_changes_are_printed(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "old.toml"
    file.write_text('[root]\nfrom = "test"  # a leak\n')
    assert main(["migrate", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "old.toml.bak" in printed and "root.from -> root.source" in printed
    assert file.read_text() == '[root]\nsource = "test"  # a leak\n'
    assert main(["migrate", str(file)]) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_a_broken_file_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[root\nfrom = 1\n")
    assert main(["migrate", str(file)]) == 2
    assert "nothing was written" in capsys.readouterr().err
    assert file.read_text() == "[root\nfrom = 1\n" and not file.with_name("broken.toml.bak").exists()
