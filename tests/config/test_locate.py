"""The line of a key in a TOML text, and the place that an error names."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragfl.config.locate import line_of, located
from dragfl.errors import DataError, DragflError, SpecError

TEXT = '''name = "x"  # line 1
note = """
[clients]
lr = 1
"""

[ clients ]  # line 7
"lr" = 0.1
local_steps = [
  1,
  5,
]

[data.partition]  # line 14
kind = "shards"
algorithm.c = 3
[[list]]
a.b = 1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("name", 1),
        ("clients", 7),
        ("clients.lr", 8),
        ("clients.lr.start", 8),  # an inline table is on the line of its key
        ("clients.local_steps", 9),
        ("clients.total", 7),  # not set: the table that it belongs to
        ("data.partition.kind", 15),
        ("data.partition.k", 14),
        ("data", None),
        ("data.partition.algorithm.c", 16),
        ("list.a.b", 18),
        ("nam", None),
        ("names", None),
        ("", None),
    ],
)
def test_the_line_of_a_key(path: str, line: int | None) -> None:
    assert line_of(TEXT, path) == line


@pytest.mark.parametrize(
    ("error", "words", "message"),
    [
        (SpecError("clients.lr: bad"), [], "x.toml:8: clients.lr: bad"),
        (DataError("data.partition: bad"), [], "x.toml:14: data.partition: bad"),
        (SpecError("clients.local_steps[1]: bad"), [], "x.toml:9: clients.local_steps[1]: bad"),
        (SpecError("clients.lr: bad"), ["seed=1", "clients.lr=2"], "override 'clients.lr=2': clients.lr: bad"),
        (SpecError("clients.lr.start: bad"), ["clients.lr=2"], "override 'clients.lr=2': clients.lr.start: bad"),
        (SpecError("clients: bad"), ["clients.lr=2"], "override 'clients.lr=2': clients: bad"),
        (SpecError("clients.l: bad"), ["clients.lr=2"], "x.toml:7: clients.l: bad"),  # no prefix of a name
        (SpecError("rounds: bad"), [], "rounds: bad"),  # a default
        (SpecError("runs/a: holds a run"), [], "runs/a: holds a run"),
        (SpecError("override 'rounds': write"), ["rounds"], "override 'rounds': write"),
        (DragflError("clients.lr: bad"), [], "clients.lr: bad"),
    ],
)
def test_the_place_of_an_error(tmp_path: Path, error: DragflError, words: list[str], message: str) -> None:
    (tmp_path / "x.toml").write_text(TEXT)
    with pytest.raises(type(error)) as raised, located(tmp_path / "x.toml", words):
        raise error
    assert str(raised.value).removeprefix(f"{tmp_path}/") == message


def test_tables_have_no_lines() -> None:
    with pytest.raises(SpecError, match=r"^clients\.lr: bad$"), located({"clients": {"lr": 1}}):
        raise SpecError("clients.lr: bad")
