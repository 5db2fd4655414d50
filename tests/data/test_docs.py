"""docs/data.md is up to date: its Python runs, its tables list every name, its figures exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragfl import data
from dragfl.data.partitions import PARTITIONS

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
TEXT = PAGE.read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT, re.S))
def test_the_examples_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {})


def test_every_dataset_and_partition_is_in_a_table() -> None:
    rows = set(re.findall(r"^\| `(\w+)`", TEXT, re.M))
    assert set(PARTITIONS) | set(data.DATASETS) <= rows


def test_the_figures_exist_and_are_small() -> None:
    for name in re.findall(r"\]\((figures/[^)]+)\)", TEXT):
        assert (PAGE.parent / name).stat().st_size < 200_000, name
