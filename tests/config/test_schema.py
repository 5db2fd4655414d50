"""The JSON schema accepts every spec of the project and refuses what editors should mark."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.algorithms import PRESETS
from dragfl.config.schema import experiment_schema, override_keys
from dragfl.config.spec import PLAIN_TABLES, TABLES
from dragfl.config.tables import Top

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install jsonschema")
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = experiment_schema()
FILES = [*ROOT.glob("examples/*.toml"), *ROOT.glob("src/dragfl/demo/[ad]*.toml")]


def problems(tables: dict[str, Any]) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(tables)]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_specs_of_the_project_are_valid(path: Path) -> None:
    assert len(FILES) >= 7
    assert problems(tomllib.loads(path.read_text())) == []


@pytest.mark.parametrize("name", PRESETS)
def test_every_resolved_spec_is_valid(name: str) -> None:
    """Also what `--dry-run` prints: all parts and all settings spelled out."""
    tables = {
        "root": {"size": 50},
        "algorithm": {"name": name},
        "attack": {"name": "sign_flip", "attackers": 2},
        "data": {"partition": {"kind": "dirichlet_class", "a": 0.3}},
    }
    if name in ("mime", "mimelite"):
        del tables["attack"]
    assert problems(tomllib.loads(dragfl.load(tables).to_toml())) == []


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"clients": {"lr": {"kind": "linear", "start": 0.1, "end": 0.0, "rounds": 5}, "local_steps": [1, 5]}},
        {"algorithm": {"aggregate": "nnm+krum", "server": {"name": "momentum", "beta": 0.5}}},
        {"algorithm": {"aggregate": {"name": "mine:Rule", "anything": 3}}, "model": "mine:Net"},
        {"algorithms": {"drag": {"c": 0.1}, "mine:Rule": {"x": 1}}, "attacks": {"alie": {"z": 1.0}}},
        {"data": {"dataset": "npz:data.npz", "partition": "iid"}, "attack": {"name": "none"}},
        {"engine": {"workers": 2}},
        {"engine": {"workers": "auto"}},
    ],
)
def test_valid(tables: dict[str, Any]) -> None:
    assert problems(tables) == []


@pytest.mark.parametrize(
    ("tables", "word"),
    [
        ({"round": 3}, "round"),
        ({"rounds": "many"}, "many"),
        ({"clients": {"lrr": 0.1}}, "lrr"),
        ({"clients": {"lr": "fast"}}, "fast"),
        ({"clients": {"lr": {"kind": "linear", "begin": 1}}}, "begin"),
        ({"algorithm": {"name": "dragg"}}, "dragg"),
        ({"algorithm": {"name": "drag", "c": "big"}}, "big"),
        ({"algorithms": {"drag": {"c": "big"}}}, "big"),
        ({"attack": {"name": "sign_flp"}}, "sign_flp"),
        ({"data": {"dataset": "digit"}}, "digit"),
        ({"evaluation": {"iterate": "best"}}, "best"),
        ({"engine": {"workers": "all"}}, "all"),
    ],
)
def test_invalid(tables: dict[str, Any], word: str) -> None:
    found = problems(tables)
    assert len(found) == 1 and word in found[0]


def test_keys_have_their_default_and_their_meaning() -> None:
    keys = SCHEMA["properties"]
    assert keys.keys() == {f.name for f in dataclasses.fields(Top)} | set(TABLES)
    momentum = keys["clients"]["properties"]["momentum"]
    assert momentum["default"] == 0.0 and "of local steps" in momentum["description"]
    assert "null" not in str(keys["clients"]["properties"]["per_round"])
    assert "of drag, br_drag" in keys["algorithm"]["properties"]["c"]["description"]


def test_override_keys() -> None:
    keys = override_keys()
    assert {"rounds", "clients.lr", "algorithm.name", "algorithm.c", "data.partition.kind", "attack.attackers"} < set(
        keys
    )
    assert all(f"{table}.{f.name}" in keys for table, kind in PLAIN_TABLES.items() for f in dataclasses.fields(kind))
