"""Commands print the same lines on a slow machine."""

from __future__ import annotations

import pytest

from dragfl.cli import progress
from tests.conftest import TIMEOUT_S


@pytest.fixture(autouse=True)
def one_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that takes more than ten seconds would print a second one; tests/cli/test_progress.py has a clock."""
    monkeypatch.setattr(progress, "LINE_SECONDS", TIMEOUT_S)
