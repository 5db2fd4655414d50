"""The lock of a run directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragfl.errors import SpecError
from dragfl.runs.lock import lock_folder


def test_a_second_lock_is_refused_and_the_first_is_released(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(SpecError, match="in use by process"), lock_folder(tmp_path):
        pass
    with lock_folder(tmp_path):
        pass
