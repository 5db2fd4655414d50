"""The table of a terminal: readable at 80 columns, numbers are never cut."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dragfl import report
from dragfl.report.terminal import _broken

from .conftest import MakeRun

CURVE = [0.5, 0.8, 0.9, 0.9, 0.85]


def shown(rows: list[report.Row], width: int) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    for table in report.rich_tables(rows, width):
        console.print(table)
    return console.export_text()


@pytest.fixture
def rows(make_run: MakeRun) -> list[report.Row]:
    """Two algorithms, three seeds each, one of which diverged and one of which did not reach the target."""
    for seed in range(3):
        make_run(
            f"a{seed}", seed=seed, rounds=10, curve=CURVE, spec={"algorithm.name": "my_module:a_long_name_of_mine"}
        )
        run = make_run(
            f"b{seed}",
            algorithm="fedavg",
            seed=seed,
            rounds=10,
            ran=[10, 10, 7][seed],
            curve=[CURVE, [0.1 * seed] * 5, CURVE][seed],
            diverged=seed == 2,
        )
    return report.summarize_runs(run.path.parent)


@pytest.mark.parametrize("width", [16, 20, 32, 40, 60, 80, 100, 120, 200])
def test_no_number_is_cut(rows: list[report.Row], width: int) -> None:
    text = shown(rows, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for row in rows:
        assert str(row.final_accuracy) in text and (str(row.best_accuracy) in text or width < 80)
    assert re.search(r"^fedavg" if width > 25 else r"^f", text, re.MULTILINE) and (
        width < 80 or "a_long_name_of_mine" in text
    )


def test_the_default_width_is_that_of_the_terminal(rows: list[report.Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    console = Console(width=60, file=io.StringIO(), record=True)
    for table in report.rich_tables(rows):
        console.print(table)
    assert console.export_text() == shown(rows, 60)


def test_columns_that_do_not_fit_are_named(rows: list[report.Row]) -> None:
    narrow, wide = shown(rows, 80), shown(rows, 200)
    assert re.search(r"Not shown for lack of width:.*bytes\s+down", narrow, re.DOTALL)
    assert "Not shown" not in wide and "seconds to 80 %" in wide and wide.count("bytes") > narrow.count("bytes")


def test_a_heading_for_each_dataset_and_attack(make_run: MakeRun) -> None:
    for seed in (0, 1):
        make_run(f"a{seed}", seed=seed, rounds=2)
        make_run(f"b{seed}", seed=seed, rounds=2, attack="sign_flip")
        run = make_run(f"c{seed}", seed=seed, rounds=2, spec={"data.dataset": "mnist"})
    tables = report.rich_tables(report.summarize_runs(run.path.parent), 80)
    assert [table.title for table in tables] == ["digits, no attack", "digits, sign_flip", "mnist, no attack"]
    assert [bool(str(table.caption).strip()) for table in tables] == [False, False, True]
    assert [list(table.columns[0].cells) for table in tables] == [["drag"]] * 3, "the heading has the rest"
    widths = [[column.width for column in table.columns] for table in tables]
    assert widths[0] == widths[1] == widths[2] and None not in widths[0], "the columns of all tables are aligned"


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("not reached (> 100)", "> 100"),
        ("not reached (> 1.5 MB)", "> 1.5 MB"),
        ("88.3 ± 5.8 %", "88.3 ± 5.8 %"),
        ("8 (4 to > 10; 2 of 3 runs)", "8\n(4 to > 10; 2 of\n3 runs)"),
        ("7–10 of 10 (diverged at round 8: seed 1)", "7–10 of 10\n(diverged at\nround 8: seed 1)"),
    ],
)
def test_a_long_cell_is_broken(text: str, broken: str) -> None:
    assert _broken(text) == broken


@given(st.text("abc 12±%().>", max_size=60), st.integers(1, 30))
def test_breaking_a_cell_loses_nothing(text: str, width: int) -> None:
    if not text.startswith("not reached"):
        assert "".join(_broken(text, width).split()) == "".join(text.split())
