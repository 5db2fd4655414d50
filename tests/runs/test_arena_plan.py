"""The plan of an attack matrix: which runs there are, and what is checked before the first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.aggregates.robust.krum import Krum
from dragfl.errors import SpecError
from dragfl.runs.arena_plan import DEFAULT_ATTACKS, DEFENCES, Arena, default_defences, plan_arena


def by_name(arena: Arena) -> dict[str, dragfl.Experiment]:
    return {p.name: p.experiment for p in arena.planned}


def test_every_combination_and_one_baseline_for_all_fractions(tables: dict[str, Any], tmp_path: Path) -> None:
    """2 defences x 2 partitions x 3 seeds, each once without attackers and under 2 attacks x 2 fractions."""
    arena = plan_arena(
        tables, ["fedavg", "br_drag"], ["sign_flip", "random_scaling"],
        partitions=["iid", {"kind": "dirichlet_class", "a": 0.5, "min_size": 1}], fractions=[0.2, 0.4],
        seeds=[0, 1, 2], out=tmp_path, root_only=False,
    )  # fmt: skip
    assert len(arena.planned) == 2 * 2 * 3 * (1 + 2 * 2) == len({p.folder for p in arena.planned})
    assert Counter(cell.attack for cell in arena.cells) == {"none": 12, "sign_flip": 24, "random_scaling": 24}
    baselines = [cell for cell in arena.cells if cell.attack == "none"]
    assert all(cell.attackers is None and cell.planned and cell.planned.experiment.attack is None for cell in baselines)
    assert arena.attackers == ["2 of 10 sampled clients attack", "4 of 10 sampled clients attack"]
    assert arena.trusted == ["br_drag"]
    assert arena.partitions == ["iid", "dirichlet_class a=0.5 min_size=1"]
    seeds = [cell.seed for cell in arena.cells]
    assert seeds == sorted(seeds)  # a whole matrix first, then the next seed


def test_settings_come_from_the_named_tables_of_the_experiment(tables: dict[str, Any], tmp_path: Path) -> None:
    planned = by_name(plan_arena(tables, ["br_drag"], ["sign_flip", "random_scaling"], out=tmp_path))
    flipped = planned["br_drag-sign_flip-attackers3-redrawtrue-iid-seed0"]
    assert flipped.attack == dragfl.attacks.SignFlip(scale=2.0)
    assert flipped.attackers.attackers == 3 and flipped.attackers.redraw
    assert flipped.algorithm.aggregate.c == 0.4  # type: ignore[attr-defined]
    scaled = planned["br_drag-random_scaling-attackers3-redrawtrue-iid-seed0"]
    assert scaled.attack == dragfl.attacks.RandomScaling()


def test_by_default_a_fifth_of_the_clients_attacks(tables: dict[str, Any], tmp_path: Path) -> None:
    del tables["attack"]
    assert plan_arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path).attackers == ["2 of 10 clients attack"]


def test_attack_none_is_the_baseline(tables: dict[str, Any], tmp_path: Path) -> None:
    arena = plan_arena(tables, ["fedavg"], ["none", "sign_flip"], out=tmp_path)
    assert arena.attacks == ["sign_flip"] and len(arena.planned) == 2


def test_a_chain_is_a_defence(tables: dict[str, Any], tmp_path: Path) -> None:
    arena = plan_arena(tables, ["nnm+trimmed_mean"], ["sign_flip"], out=tmp_path)
    baseline, attacked = arena.planned
    assert attacked.name.startswith("nnm+trimmed_mean-sign_flip")
    rule = attacked.experiment.tables()["algorithm"]["aggregate"]
    assert list(rule["chain"]) == ["nnm", "trimmed_mean"] and rule["f"] == 3
    assert baseline.experiment.tables()["algorithm"]["aggregate"]["f"] == 3  # as if three attacked


def test_a_defence_has_the_largest_f_that_it_admits(tables: dict[str, Any], tmp_path: Path) -> None:
    """Krum needs 2f + 3 updates: with 10 clients f is 2 for two attackers, and at most 3 for five."""
    arena = plan_arena(tables, ["krum"], ["sign_flip"], fractions=[0.2, 0.5], out=tmp_path)
    assert [(cell.attackers, cell.planned.experiment.exceeds_f) for cell in arena.cells if cell.planned] == [
        (None, None), ("2 of 10 sampled clients attack", 0.0), ("5 of 10 sampled clients attack", 1.0),
    ]  # fmt: skip
    rules = [p.experiment.algorithm.aggregate for p in arena.planned]
    assert rules == [Krum(3), Krum(2), Krum(3)]  # the baseline is configured for the largest fraction


def test_a_combination_that_is_refused_is_a_cell_with_a_reason(tables: dict[str, Any], tmp_path: Path) -> None:
    """With f = 4 Krum needs 11 updates. The other defence runs."""
    tables["algorithms"] = {"krum": {"f": 4}}
    arena = plan_arena(tables, ["krum", "fedavg"], ["sign_flip"], out=tmp_path)
    missing = [cell for cell in arena.cells if cell.planned is None]
    assert [(cell.defence, cell.attack) for cell in missing] == [("krum", "none"), ("krum", "sign_flip")]
    assert "needs at least 11 updates, got 10" in missing[1].reason


def test_the_spec_of_a_run_may_be_the_experiment_of_an_arena(tables: dict[str, Any], tmp_path: Path) -> None:
    """Its exceeds_f belongs to its own rule and is computed again for each defence."""
    attack = {"name": "sign_flip", "attackers": 3}
    resolved = dragfl.load({**tables, "algorithm": {"name": "krum"}, "attack": attack}).tables()
    assert resolved["attack"]["exceeds_f"] == 0.0
    arena = plan_arena({**resolved, "data": tables["data"]}, ["fedavg", "bulyan"], ["alie"], out=tmp_path)
    assert [p.experiment.exceeds_f for p in arena.planned] == [None, None, None, 1.0]


def test_a_defence_with_too_few_clients_is_a_row_of_reasons(tables: dict[str, Any], tmp_path: Path) -> None:
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
        (["fedavg"], ["sign_flop"], {}, "unknown name 'sign_flop'; did you mean 'sign_flip'?"),
        ([], ["sign_flip"], {}, "no defences"),
        (["fedavg"], ["none"], {}, "no attacks"),
        (["fedavg"], ["sign_flip"], {"seeds": ()}, "no seeds"),
        (["fedavg"], ["sign_flip"], {"fractions": []}, "no fractions"),
        (["fedavg"], ["sign_flip"], {"fractions": [1.5]}, "fraction 1.5"),
        (["fedavg"], ["sign_flip"], {"fractions": [0.2, 0.21]}, "two give the same number of attackers"),
        (["fedavg"], ["sign_flip"], {"partitions": ["iit"]}, "did you mean 'iid'?"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_before_the_first_run(
    tables: dict[str, Any], tmp_path: Path, defences: list[str], attacks: list[str], options: Any, message: str
) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.arena(tables, defences, attacks, out=tmp_path / "a", **options)
    assert message in str(error.value)
    assert not (tmp_path / "a").exists()


def test_a_defence_without_its_root_data_is_an_error(tables: dict[str, Any], tmp_path: Path) -> None:
    del tables["root"]
    with pytest.raises(SpecError, match=r"defence 'fltrust': needs trusted root data"):
        plan_arena(tables, ["fedavg", "fltrust"], ["sign_flip"], out=tmp_path)
    assert {"fltrust", "br_drag", "cone_drag"}.isdisjoint(default_defences(tables)) and "fedavg" in default_defences(
        tables
    )


def test_default_defences_and_attacks(tables: dict[str, Any], tmp_path: Path) -> None:
    defences = default_defences(tables)
    assert tuple(defences) == DEFENCES and len(defences) == 11 and len(DEFAULT_ATTACKS) == 8
    assert len(plan_arena(tables, defences, DEFAULT_ATTACKS, out=tmp_path).cells) == 12 * 9


def test_root_only_is_a_row_wherever_a_defence_uses_root_data(tables: dict[str, Any], tmp_path: Path) -> None:
    def rows(*defences: str, **options: bool) -> tuple[list[str], list[str]]:
        arena = plan_arena(tables, defences, ["sign_flip"], out=tmp_path, **options)
        return arena.defences, arena.trusted

    assert rows("fedavg", "fltrust") == (["fedavg", "fltrust", "root_only"], ["fltrust", "root_only"])
    assert rows("root_only", "br_drag") == (["root_only", "br_drag"], ["root_only", "br_drag"])
    assert rows("br_drag", root_only=False) == (["br_drag"], ["br_drag"])
    assert rows("fedavg", "median") == (["fedavg", "median"], [])


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ({"seeds": ["x"]}, "seed 'x'"),
        ({"seeds": [-1]}, "seed -1"),
        ({"fractions": ["abc"]}, "fraction 'abc'"),
        ({"fractions": [0]}, "fraction 0"),
    ],
)
def test_invalid_seeds_and_fractions_write_nothing(tmp_path: Path, sides: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        dragfl.arena({"rounds": 1}, ["fedavg"], ["sign_flip"], out=tmp_path / "out", **sides)
    assert not (tmp_path / "out").exists()
