"""`key=value`: literals, bare words, tables inside tables, and what setting an algorithm or a part replaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.config.overrides import override, parse_override
from dragfl.errors import SpecError
from dragfl.schedules import Schedule

FILE = """
rounds = 7
[root]
size = 50
[clients]
lr = 0.1
[algorithm]
name = "drag"
c = 0.1
alpha = 0.5
[algorithms.br_drag]
c = 0.7
[algorithms.drag]
c = 0.9
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a=1", ["a"], 1),
        ("a.b = 0.5", ["a", "b"], 0.5),
        ("a=true", ["a"], True),
        ("a='x=y'", ["a"], "x=y"),
        ("a=[1, 2]", ["a"], [1, 2]),
        ("a={ kind = 'linear', start = 1 }", ["a"], {"kind": "linear", "start": 1}),
        ("a=sorted_shards", ["a"], "sorted_shards"),
        ("a=my.module:attr", ["a"], "my.module:attr"),
        ("a=-1e-3", ["a"], -1e-3),
    ],
)
def test_values(text: str, path: list[str], value: Any) -> None:
    assert parse_override(text) == (path, value)


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=1", ".a=1", "a=", "a=[1", "a={x}", 'a="open', "a==b"])
def test_bad_syntax(text: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"override {text!r}:")):
        dragfl.load({}, text)


def test_plain_and_nested(toml: Path) -> None:
    e = dragfl.load(toml, "rounds=9", "clients.total=5")
    assert (e.rounds, e.clients.total, e.clients.lr) == (9, 5, 0.1)
    e = dragfl.load(toml, "data.partition.kind=dirichlet_class", "data.partition.a=0.3")
    assert e.partition.a == 0.3  # type: ignore[attr-defined]
    e = dragfl.load(toml, "clients.lr={kind='cosine', start=0.2, rounds=5}")
    assert e.clients.lr == Schedule(0.2, "cosine", rounds=5)


def test_a_table_below_a_value(toml: Path) -> None:
    with pytest.raises(SpecError, match=r"clients\.lr\.kind: 'lr' is not a table but 0\.1; set it as a whole"):
        dragfl.load(toml, "clients.lr.kind=cosine")


def test_the_last_one_counts(toml: Path) -> None:
    assert dragfl.load(toml, "rounds=8", "rounds=9").rounds == 9


def test_the_file_s_tables_are_not_changed() -> None:
    tables: dict[str, Any] = {"clients": {"lr": 0.1}, "algorithm": {"name": "drag", "c": 0.2}}
    override(tables, ["clients.lr=0.5", "algorithm.server=momentum", "algorithm.name=fedavg"])
    assert tables == {"clients": {"lr": 0.1}, "algorithm": {"name": "drag", "c": 0.2}}


def algorithm(toml: Path, *overrides: str) -> dict[str, Any]:
    return dict(dragfl.load(toml, *overrides).tables()["algorithm"])


class TestName:
    def test_replaces_the_table_by_the_preset_and_its_own(self, toml: Path) -> None:
        table = algorithm(toml, "algorithm.name=br_drag")
        assert table["name"] == "br_drag"
        assert table["aggregate"]["c"] == 0.7

    def test_what_the_old_table_set_is_gone(self, toml: Path) -> None:
        table = algorithm(toml, "algorithm.name=drag")
        assert (table["aggregate"]["c"], table["aggregate"]["alpha"]) == (0.9, 1.0)

    def test_an_algorithm_without_a_table_has_its_defaults(self, toml: Path) -> None:
        assert algorithm(toml, "algorithm.name=fltrust")["aggregate"] == {"name": "fltrust", "on_no_trust": "skip"}

    def test_order_does_not_matter(self, toml: Path) -> None:
        assert algorithm(toml, "algorithm.c=0.3", "algorithm.name=br_drag")["aggregate"]["c"] == 0.3

    def test_a_file_that_only_names_takes_its_settings(self) -> None:
        e = dragfl.load({"algorithm": {"name": "drag"}, "algorithms": {"drag": {"c": 0.6}}})
        assert e.algorithm.aggregate.c == 0.6  # type: ignore[attr-defined]

    def test_a_file_that_sets_anything_does_not(self) -> None:
        e = dragfl.load({"algorithm": {"name": "drag", "alpha": 0.5}, "algorithms": {"drag": {"c": 0.6}}})
        assert e.algorithm.aggregate.c == 0.25  # type: ignore[attr-defined]


class TestParts:
    def test_a_composition_no_preset_names(self, toml: Path) -> None:
        table = algorithm(toml, "algorithm.aggregate=drag", "algorithm.server=momentum")
        assert table["name"] == "drag+momentum"
        assert table["aggregate"]["c"] == 0.25, "the part is replaced, and the settings the file had for it"
        assert table["server"] == {"name": "momentum", "lr": 1.0, "beta": 0.9}

    def test_the_other_parts_keep_their_settings(self, toml: Path) -> None:
        table = algorithm(toml, "algorithm.server=momentum")
        assert table["name"] == "drag+momentum"
        assert (table["aggregate"]["c"], table["aggregate"]["alpha"]) == (0.1, 0.5)

    def test_settings_of_a_part(self, toml: Path) -> None:
        table = algorithm(toml, "algorithm.server.beta=0.5", "algorithm.server=momentum", "algorithm.c=0.3")
        assert (table["server"]["beta"], table["aggregate"]["c"]) == (0.5, 0.3)

    def test_a_setting_alone_keeps_the_name(self, toml: Path) -> None:
        table = algorithm(toml, "algorithm.aggregate.c=0.3")
        assert (table["name"], table["aggregate"]["c"], table["aggregate"]["alpha"]) == ("drag", 0.3, 0.5)

    def test_by_name_or_by_table(self, toml: Path) -> None:
        for text in ("algorithm.server.name=momentum", "algorithm.server={name='momentum'}"):
            assert algorithm(toml, text) == algorithm(toml, "algorithm.server=momentum")

    def test_a_setting_of_what_is_replaced(self, toml: Path) -> None:
        message = r"algorithm\.c: is a setting of the aggregate .* write algorithm\.aggregate\.c instead"
        with pytest.raises(SpecError, match=message):
            dragfl.load(toml, "algorithm.c=0.3", "algorithm.aggregate=br_drag")

    def test_back_to_fedavg(self, toml: Path) -> None:
        assert algorithm(toml, "algorithm.aggregate=mean")["name"] == "fedavg"

    def test_on_a_resolved_spec(self, toml: Path, tmp_path: Path) -> None:
        """The spec.toml of a run has its parts spelled out."""
        (tmp_path / "spec.toml").write_text(dragfl.load(toml).to_toml())
        table = algorithm(tmp_path / "spec.toml", "algorithm.server=momentum")
        assert (table["name"], table["aggregate"]["c"]) == ("drag+momentum", 0.1)
        with pytest.raises(SpecError, match=r"algorithm\.c: .* algorithm\.aggregate\.c"):
            dragfl.load(tmp_path / "spec.toml", "algorithm.c=0.3")


def test_the_settings_of_a_text_file() -> None:
    """Equals signs after a question mark belong to the name of the dataset."""
    path, value = parse_override("data.dataset=text:play.txt?window=8&by=speaker")
    assert (path, value) == (["data", "dataset"], "text:play.txt?window=8&by=speaker")
    with pytest.raises(SpecError, match="not a TOML value"):
        parse_override("data.dataset=a=b?c=d")
