"""Several `flwr` commands in one process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragfl.errors import DragflError
from dragfl.flower.commands import FlowerCommands
from dragfl.flower.fleet import environment
from tests.flower.processes import below


def test_answers_and_errors(tmp_path: Path) -> None:
    """One process answers all of them; an error does not end it."""
    before = below(os.getpid())
    with FlowerCommands(environment(tmp_path)) as flwr:
        assert "Flower version" in flwr("--version")["text"]
        with pytest.raises(DragflError, match=r"flwr nonsense: .*No such command 'nonsense'"):
            flwr("nonsense")
        (tmp_path / "config.toml").write_text('[superlink]\ndefault = "a"\n[superlink.a]\naddress = "127.0.0.1:1"\n')
        with pytest.raises(DragflError, match=r"flwr list a --format json: .*SuperLink"):
            flwr("list", "a", "--format", "json")
        assert len(below(os.getpid()) - before) == 1
        flwr._process.kill()
        with pytest.raises(DragflError, match="flwr --version: its process has ended"):
            flwr("--version")
    assert not below(os.getpid()) - before
