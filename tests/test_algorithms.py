"""Presets and compositions: what a name stands for, and what a composition is called."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import dragfl
from dragfl.algorithms import PARTS, PRESETS, expand
from dragfl.errors import SpecError


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_three_known_parts(name: str) -> None:
    preset = PRESETS[name]
    for part, registry in PARTS.items():
        assert getattr(preset, part) in registry
    for part, settings in preset.defaults.items():
        known = {f.name for f in fields(PARTS[part][getattr(preset, part)])}
        assert settings.keys() <= known
    assert preset.paper


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_flat_settings_reach_their_part(name: str) -> None:
    for flat, places in PRESETS[name].flat().items():
        marker = object()
        expanded = expand({"name": name, flat: marker})
        assert [expanded[part][setting] for part, setting in places] == [marker] * len(places)


def test_the_four_of_the_paper() -> None:
    composed = {n: (PRESETS[n].correction, PRESETS[n].aggregate, PRESETS[n].server) for n in PRESETS}
    assert composed["fedavg"] == ("none", "mean", "sgd")
    assert composed["drag"] == ("none", "drag", "sgd")
    assert composed["br_drag"] == ("none", "br_drag", "sgd")
    assert composed["fltrust"] == ("none", "fltrust", "sgd")


@pytest.mark.parametrize(
    ("table", "label"),
    [
        ({}, "fedavg"),
        ({"name": "drag"}, "drag"),
        ({"aggregate": "drag", "server": "momentum"}, "drag+momentum"),
        ({"aggregate": {"name": "drag", "c": 0.1}, "server": {"name": "momentum"}}, "drag+momentum"),
        ({"name": "drag", "server": "momentum"}, "drag+momentum"),
        ({"server": "momentum"}, "momentum"),
        ({"aggregate": "mean", "server": "sgd", "correction": "none"}, "fedavg"),
        ({"name": "mine", "aggregate": "mean", "server": "sgd", "correction": "none"}, "mine"),
    ],
)
def test_labels(table: dict[str, Any], label: str) -> None:
    assert expand(table)["name"] == label


@pytest.mark.parametrize(
    "table",
    [
        {"name": "nnm+trimmed_mean", "f": 2},
        {"aggregate": {"name": "nnm+trimmed_mean", "f": 2}},
        {"aggregate": {"chain": ["nnm", "trimmed_mean"], "f": 2}},
    ],
)
def test_a_chain_in_one_word(table: dict[str, Any]) -> None:
    expanded = expand(table)
    assert expanded["aggregate"] == {"name": "chain", "chain": ["nnm", "trimmed_mean"], "f": 2}
    assert expanded["name"] == "nnm+trimmed_mean"


def test_expanding_twice_is_expanding_once() -> None:
    for name in PRESETS:
        once = expand({"name": name})
        assert expand(once) == once


def test_the_paper_s_defaults() -> None:
    drag = dragfl.load({"algorithm": {"name": "drag"}}).algorithm.aggregate
    assert (drag.c, drag.alpha, drag.variant, drag.divergence) == (0.25, 1.0, "paper", "linear")  # type: ignore[attr-defined]


def test_a_setting_of_another_algorithm() -> None:
    with pytest.raises(SpecError, match=r"algorithm\.c: fedavg has no setting 'c'"):
        expand({"name": "fedavg", "c": 0.5})


@pytest.mark.parametrize(
    ("kind", "name", "word"),
    [
        ("aggregate", "mean", {"weighting": "sample"}),
        ("aggregate", "fednova", {"weighting": "sample"}),
        ("aggregate", "fltrust", {"on_no_trust": "rooot"}),
        ("correction", "scaffold", {"option": "1"}),
        ("correction", "mime", {"weighting": "sample"}),
    ],
)
def test_an_unknown_choice_is_an_error(kind: str, name: str, word: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="is unknown"):
        PARTS[kind][name](**word)
