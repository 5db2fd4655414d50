"""Every defence against every attack: which runs there are, what is checked before the first, and going on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.errors import Interrupted, SpecError
from dragfl.runs.arena import MANIFEST
from dragfl.runs.arena_plan import DEFAULT_ATTACKS, DEFENCES, Arena, default_defences, plan_arena
from dragfl.runs.sweep import Callbacks
from tests.conftest import kept_bytes


@pytest.fixture
def tables(toy: dragfl.Dataset) -> dict[str, Any]:
    """Ten clients on the toy data; three of them attack."""
    return {
        "name": "toy",
        "rounds": 3,
        "data": {"dataset": toy},
        "root": {"size": 20},
        "clients": {"total": 10, "local_steps": 2, "batch_size": 5, "lr": 0.2},
        "algorithms": {"br_drag": {"c": 0.4}},
        "attack": {"name": "sign_flip", "scale": 9.0, "attackers": 3, "redraw": True},
        "attacks": {"sign_flip": {"scale": 2.0}},
        "model": {"name": "logistic"},
        "evaluation": {"every": 1},
        "checkpoint": {"every": 1},
    }


def by_name(arena: Arena) -> dict[str, dragfl.Experiment]:
    return {p.name: p.experiment for p in arena.planned}


def test_every_combination_and_one_clean_run_for_all_fractions(tables: dict[str, Any], tmp_path: Path) -> None:
    """2 defences x 2 partitions x 3 seeds, each once without attackers and under 2 attacks x 2 fractions."""
    arena = plan_arena(
        tables, ["fedavg", "br_drag"], ["sign_flip", "random_scaling"],
        partitions=["iid", {"kind": "dirichlet_class", "a": 0.5, "min_size": 1}], fractions=[0.2, 0.4],
        seeds=[0, 1, 2], out=tmp_path,
    )  # fmt: skip
    assert len(arena.planned) == 2 * 2 * 3 * (1 + 2 * 2) == len({p.folder for p in arena.planned})
    assert Counter(cell.attack for cell in arena.cells) == {"none": 12, "sign_flip": 24, "random_scaling": 24}
    clean = [cell for cell in arena.cells if cell.attack == "none"]
    assert all(cell.attackers is None and cell.planned and cell.planned.experiment.attack is None for cell in clean)
    assert arena.attackers == ["2 of 10 sampled clients attack", "4 of 10 sampled clients attack"]
    assert arena.trusted == ["br_drag"]
    assert arena.partitions == ["iid", "dirichlet_class a=0.5 min_size=1"]
    seeds = [cell.seed for cell in arena.cells]
    assert seeds == sorted(seeds)  # a whole matrix first, then the next seed


def test_settings_come_from_the_tables_of_the_experiment(tables: dict[str, Any], tmp_path: Path) -> None:
    planned = by_name(plan_arena(tables, ["br_drag"], ["sign_flip", "random_scaling"], out=tmp_path))
    flipped = planned["br_drag-sign_flip-attackers3-redrawtrue-iid-seed0"]
    assert flipped.attack == dragfl.attacks.SignFlip(scale=2.0)
    assert flipped.attackers.attackers == 3 and flipped.attackers.redraw
    assert flipped.algorithm.aggregate.c == 0.4  # type: ignore[attr-defined]
    scaled = planned["br_drag-random_scaling-attackers3-redrawtrue-iid-seed0"]
    assert scaled.attack == dragfl.attacks.RandomScaling()


def test_without_a_number_a_fifth_attacks(tables: dict[str, Any], tmp_path: Path) -> None:
    del tables["attack"]
    assert plan_arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path).attackers == ["2 of 10 clients attack"]


def test_none_among_the_attacks_is_the_clean_column(tables: dict[str, Any], tmp_path: Path) -> None:
    arena = plan_arena(tables, ["fedavg"], ["none", "sign_flip"], out=tmp_path)
    assert arena.attacks == ["sign_flip"] and len(arena.planned) == 2


def test_a_chain_is_a_defence(tables: dict[str, Any], tmp_path: Path) -> None:
    arena = plan_arena(tables, ["nnm+trimmed_mean"], ["sign_flip"], out=tmp_path)
    calm, attacked = arena.planned
    assert attacked.name.startswith("nnm+trimmed_mean-sign_flip")
    rule = attacked.experiment.tables()["algorithm"]["aggregate"]
    assert list(rule["chain"]) == ["nnm", "trimmed_mean"] and rule["f"] == 3
    assert calm.experiment.tables()["algorithm"]["aggregate"]["f"] == 3  # prepared for them, and none come


def test_what_cannot_be_set_up_is_a_cell_with_a_reason(tables: dict[str, Any], tmp_path: Path) -> None:
    """Krum needs 2f + 3 updates: 9 for three attackers among ten, 13 for five. The others are played."""
    arena = plan_arena(tables, ["krum", "fedavg"], ["sign_flip"], fractions=[0.3, 0.5], out=tmp_path)
    missing = [cell for cell in arena.cells if cell.planned is None]
    assert [(cell.defence, cell.attackers) for cell in missing] == [("krum", "5 of 10 sampled clients attack")]
    assert "needs at least 13 updates, got 10" in missing[0].reason
    clean = by_name(arena)["krum-none-f3-iid-seed0"]
    assert clean.algorithm.aggregate.f == 3  # type: ignore[attr-defined] # what it can be prepared for
    assert len(arena.planned) == 1 + 1 + 1 + 2


def test_a_rule_that_never_has_enough_clients_is_a_row_of_reasons(tables: dict[str, Any], tmp_path: Path) -> None:
    tables["clients"]["total"], tables["attack"]["attackers"] = 2, 1
    arena = plan_arena(tables, ["krum", "fedavg"], ["sign_flip"], out=tmp_path)
    missing = {cell.attack: cell.reason for cell in arena.cells if cell.planned is None}
    assert missing.keys() == {"none", "sign_flip"} and "got 2" in missing["none"]
    assert len(arena.planned) == 2


def test_a_partition_may_be_an_object(tables: dict[str, Any], tmp_path: Path) -> None:
    tables["data"]["partition"] = dragfl.partitions.IID()
    arena = plan_arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path)
    assert arena.partitions == ["IID"] and all(p.name.endswith("IID-seed0") for p in arena.planned)


@pytest.mark.parametrize(
    ("defences", "attacks", "options", "message"),
    [
        (["fedavgg"], ["sign_flip"], {}, "defence 'fedavgg': unknown rule; did you mean 'fedavg'?"),
        (["nnm+trimed_mean"], ["sign_flip"], {}, "did you mean 'trimmed_mean'?"),
        (["fedavg"], ["sign_flop"], {}, "attack 'sign_flop': unknown attack; did you mean 'sign_flip'?"),
        ([], ["sign_flip"], {}, "no defences"),
        (["fedavg"], ["none"], {}, "no attacks"),
        (["fedavg"], ["sign_flip"], {"seeds": ()}, "no seeds"),
        (["fedavg"], ["sign_flip"], {"fractions": []}, "no fractions"),
        (["fedavg"], ["sign_flip"], {"fractions": [1.5]}, "fraction 1.5"),
        (["fedavg"], ["sign_flip"], {"fractions": [0.2, 0.21]}, "two give the same number of attackers"),
        (["fedavg"], ["sign_flip"], {"partitions": ["iit"]}, "did you mean 'iid'?"),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_the_first_run(
    tables: dict[str, Any], tmp_path: Path, defences: list[str], attacks: list[str], options: Any, message: str
) -> None:
    with pytest.raises(SpecError) as told:
        dragfl.arena(tables, defences, attacks, out=tmp_path / "a", **options)
    assert message in str(told.value)
    assert not (tmp_path / "a").exists()


def test_a_rule_without_its_trusted_data_is_an_error(tables: dict[str, Any], tmp_path: Path) -> None:
    del tables["root"]
    with pytest.raises(SpecError, match=r"defence 'fltrust': .* needs trusted root data"):
        plan_arena(tables, ["fedavg", "fltrust"], ["sign_flip"], out=tmp_path)
    assert {"fltrust", "br_drag"}.isdisjoint(default_defences(tables)) and "fedavg" in default_defences(tables)


def test_what_is_played_where_nothing_is_chosen(tables: dict[str, Any], tmp_path: Path) -> None:
    defences = default_defences(tables)
    assert tuple(defences) == DEFENCES and len(defences) == 10 and len(DEFAULT_ATTACKS) == 8
    assert len(plan_arena(tables, defences, DEFAULT_ATTACKS, out=tmp_path).cells) == 10 * 9


def test_an_interrupted_arena_goes_on_to_the_same_bytes(tables: dict[str, Any], tmp_path: Path) -> None:
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


def test_an_arena_grows_in_its_folder(tables: dict[str, Any], tmp_path: Path) -> None:
    dragfl.arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path)
    ended: list[bool] = []
    callbacks = Callbacks(on_end=lambda run, already: ended.append(already))
    dragfl.arena(tables, ["fedavg"], ["sign_flip", "random_scaling"], out=tmp_path, callbacks=callbacks)
    assert ended == [True, True, False]
    assert json.loads((tmp_path / MANIFEST).read_text())["attacks"] == ["sign_flip", "random_scaling"]


def test_the_named_tables_of_attacks(tables: dict[str, Any]) -> None:
    """`attack.name=` takes the settings of `[attacks.NAME]` and leaves who attacks as it is; `none` takes it away."""
    assert dragfl.load(tables).attack == dragfl.attacks.SignFlip(scale=9.0)  # its own settings stand
    named = dragfl.load(tables, "attack.name=sign_flip")
    assert named.attack == dragfl.attacks.SignFlip(scale=2.0) and named.attackers.redraw
    assert dragfl.load(tables, "attack.scale=3.0", "attack.name=sign_flip").attack == dragfl.attacks.SignFlip(scale=3.0)
    assert dragfl.load(tables, "attack.name=random_scaling").attack == dragfl.attacks.RandomScaling()
    assert dragfl.load(tables, "attack.name=none", "attack.attackers=2").attack is None
    bare = {**tables, "attack": {"name": "sign_flip", "attackers": 1}}
    assert dragfl.load(bare).attack == dragfl.attacks.SignFlip(scale=2.0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sign_flop": {}}, "attacks.sign_flop: unknown attack 'sign_flop'; did you mean 'sign_flip'?"),
        ({"sign_flip": {"scael": 1.0}}, "attacks.sign_flip.scael: unknown key 'scael'; did you mean 'scale'?"),
        ({"sign_flip": {"scale": "x"}}, "attacks.sign_flip.scale: expected `float`, got `str`"),
        ({"sign_flip": {"attackers": 3}}, "attacks.sign_flip.attackers: unknown key"),
        ({"sign_flip": 3}, "attacks.sign_flip: expected a table, got 3"),
    ],
)  # fmt: skip
def test_mistakes_in_the_tables_of_attacks(tables: dict[str, Any], table: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as told:
        dragfl.load({**tables, "attacks": table})
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        ({"seeds": ["x"]}, "seed 'x'"),
        ({"seeds": [-1]}, "seed -1"),
        ({"fractions": ["abc"]}, "fraction 'abc'"),
        ({"fractions": [0]}, "fraction 0"),
    ],
)
def test_sides_that_make_no_sense_write_nothing(tmp_path: Path, sides: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        dragfl.arena({"rounds": 1}, ["fedavg"], ["sign_flip"], out=tmp_path / "out", **sides)
    assert not (tmp_path / "out").exists()
