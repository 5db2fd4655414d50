"""The settings that decide a result, and those that do not."""

from __future__ import annotations

from typing import Any

import pytest

import dragfl
from dragfl.config.compare import comparable, same_result

SAME = [
    "name=other", "engine.workers=2", "engine.executor=local", "state.on_missing=zero", "state.memory_mb=0",
    "checkpoint.every=3",
]  # fmt: skip
DIFFERENT = [
    "seed=1",
    "rounds=7",
    "clients.lr=0.2",
    "evaluation.batch_size=10",
    "engine.block=4",
    "algorithm.name=drag",
]


@pytest.mark.parametrize("override", SAME)
def test_settings_that_change_no_number(override: str) -> None:
    assert comparable(dragfl.load({}, override).tables()) == comparable(dragfl.load({}).tables())


@pytest.mark.parametrize("override", DIFFERENT)
def test_settings_that_change_the_result(override: str) -> None:
    assert comparable(dragfl.load({}, override).tables()) != comparable(dragfl.load({}).tables())


def test_the_label_of_an_algorithm_changes_no_number() -> None:
    tables = dragfl.load({"algorithm": {"name": "drag"}}).tables()
    assert comparable(tables | {"algorithm": tables["algorithm"] | {"name": "ours"}}) == comparable(tables)


def test_block_and_trainer_may_be_resolved_by_the_run() -> None:
    resolved = dragfl.load({"engine": {"block": 4, "trainer": "dense"}}).tables()
    assert same_result(dragfl.load({}).tables(), resolved)
    assert same_result(dragfl.load({"engine": {"block": 4}}).tables(), resolved)
    assert not same_result(dragfl.load({"engine": {"block": 5}}).tables(), resolved)
    assert not same_result(dragfl.load({"engine": {"trainer": "reference"}}).tables(), resolved)


@pytest.mark.parametrize(("correction", "same"), [("none", True), ("scaffold", False)])
def test_forged_extras_count_where_a_correction_sends_some(correction: str, same: bool) -> None:
    tables: dict[str, Any] = {"algorithm": {"correction": correction}, "attack": {"name": "alie", "attackers": 1}}
    forged, honest = (dragfl.load(tables, f"attack.forge_extras={value}").tables() for value in ("true", "false"))
    assert (comparable(forged) == comparable(honest)) is same


@pytest.mark.parametrize(
    ("attack", "forges"),
    [
        ({"name": "sign_flip"}, False),
        ({"name": "label_flip"}, False),
        ({"name": "alie"}, True),
        ({"name": "min_max", "knowledge": "colluding"}, True),
        ({"name": "alie", "forge_extras": False}, False),
        ({"name": "sign_flip", "forge_extras": True}, True),
    ],
)
def test_attackers_that_know_more_than_themselves_forge_extras(attack: dict[str, Any], forges: bool) -> None:
    experiment = dragfl.load({"attack": {"attackers": 1, **attack}})
    assert experiment.attackers.forge_extras is forges
    assert experiment.tables()["attack"]["forge_extras"] is forges
