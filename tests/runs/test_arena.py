"""Running an attack matrix: interrupted, continued, extended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.errors import Interrupted
from dragfl.runs.arena import MANIFEST
from dragfl.runs.sweep import Callbacks
from tests.conftest import kept_bytes


def test_an_interrupted_arena_continues_to_the_same_bytes(tables: dict[str, Any], tmp_path: Path) -> None:
    sides = (["fedavg", "br_drag"], ["sign_flip", "random_scaling"])
    whole = dragfl.arena(tables, *sides, out=tmp_path / "whole")
    seen = 0

    def stop_once() -> bool:
        nonlocal seen
        seen += 1
        return seen in (2, 9)

    for _ in range(2):
        with pytest.raises(Interrupted, match=r"arena stopped .* same command"):
            dragfl.arena(tables, *sides, out=tmp_path / "cut", callbacks=Callbacks(should_stop=stop_once))
    ended: list[bool] = []
    callbacks = Callbacks(on_end=lambda run, already: ended.append(already))
    cut = dragfl.arena(tables, *sides, out=tmp_path / "cut", callbacks=callbacks)
    assert True in ended and False in ended
    assert [run.name for run in cut] == [run.name for run in whole]
    assert [kept_bytes(run.path) for run in cut] == [kept_bytes(run.path) for run in whole]
    assert (tmp_path / "cut" / MANIFEST).read_bytes() == (tmp_path / "whole" / MANIFEST).read_bytes()


def test_a_later_call_may_add_attacks(tables: dict[str, Any], tmp_path: Path) -> None:
    dragfl.arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path)
    ended: list[bool] = []
    callbacks = Callbacks(on_end=lambda run, already: ended.append(already))
    dragfl.arena(tables, ["fedavg"], ["sign_flip", "random_scaling"], out=tmp_path, callbacks=callbacks)
    assert ended == [True, True, False]
    assert json.loads((tmp_path / MANIFEST).read_text())["attacks"] == ["sign_flip", "random_scaling"]
