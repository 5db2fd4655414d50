"""A few faults of the rows that need no processes, and the table itself. All of them: `make test-faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.rows import ROWS, run_row
from tests.faults.table import Row, describe_machine, read_rows, render_markdown, write_json


@pytest.mark.parametrize("name", ["damage-flower", "fuzz-results", "fuzz-messages"])
def test_nothing_is_lost(name: str) -> None:
    row = run_row(name, seed=1, quick=True)
    assert not row.lost, row.lost
    assert row.injected > 20
    assert row.injected == row.same_bytes + row.named + row.harmless


def test_an_error_of_a_row_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "broken", "nowhere:row")
    assert "ModuleNotFoundError" in run_row("broken", seed=0, quick=True).lost[0]


def test_the_table_as_markdown(tmp_path: Path) -> None:
    row = Row("disk full", "pool", trials=2)
    row.add("same_bytes", 3)
    row.add("lost", 1, "two bytes differ")
    machine = describe_machine(seed=7, quick=False)
    rows = {"disk": row, "clock": Row("clock", skipped="no root")}
    write_json(tmp_path / "t.json", machine, rows)
    assert read_rows(tmp_path / "t.json") == rows and read_rows(tmp_path / "none.json") == {}
    text = render_markdown(tmp_path / "t.json")
    assert "| disk full | pool | 2 | 4 | 3 | 0 | 0 | 1 | 0 |" in text
    assert "clock (skipped: no root)" in text
    assert "4 faults, 1 lost." in text and f"commit {machine['commit']}, seed 7" in text
