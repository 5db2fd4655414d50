"""Attacks with a tuning budget: which strengths are tried, which one is selected, what is reported."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragfl
from dragfl.attacks import ATTACKS
from dragfl.errors import Interrupted, RunsFailed, SpecError
from dragfl.report.arena.results import MANIFEST
from dragfl.runs.arena_plan import plan_arena
from dragfl.runs.arena_tuning import plan_strengths, strength_values
from dragfl.runs.sweep import Callbacks
from dragfl.types import NoState, RoundContext, Updates, View, no_state


def test_the_candidates_are_geometric_and_contain_the_default() -> None:
    """1/4 to 16 in four steps of 4; the default 3 replaces the nearest, 4: log 4/3 < log 3/1."""
    assert strength_values(1.0, 0.25, 16.0, 4) == [0.25, 1.0, 4.0, 16.0]
    assert strength_values(3.0, 0.25, 16.0, 4) == [0.25, 1.0, 3.0, 16.0]
    assert strength_values(None, 0.25, 4.0, 4) == [None, 0.25, 1.0, 4.0]
    assert strength_values(None, 0.25, 4.0, 2) == [None, 4.0]
    assert strength_values(1.0, 0.25, 16.0, 2) == [1.0, 16.0]


@given(st.one_of(st.none(), st.floats(1e-3, 1e3)), st.integers(2, 12))
def test_there_are_as_many_different_candidates_as_the_budget(default: float | None, n: int) -> None:
    values = strength_values(default, 0.1, 10.0, n)
    assert len(values) == n == len(set(values)) and default in values


@pytest.mark.parametrize("name", ATTACKS)
def test_every_built_in_strength_is_a_setting_with_valid_values(name: str) -> None:
    attack = ATTACKS[name]()
    if (declared := getattr(attack, "strength", None)) is None:
        assert name in {"free_rider", "min_max", "min_sum", "mimic", "fang_krum", "non_finite", "backdoor"} | {
            "adaptive_fltrust", "adaptive_br_drag", "adaptive_cone",
        }  # fmt: skip
        return
    setting, low, high = declared
    default = getattr(attack, setting)
    assert setting in [f.name for f in fields(attack)] and 0 < low < high
    assert default is None or low <= default <= high
    for value in strength_values(default, low, high, 3):
        ATTACKS[name](**{setting: value})


def test_settings_that_leave_nothing_to_tune() -> None:
    assert ATTACKS["alie"](knowledge="white_box").strength is None
    assert ATTACKS["ipm"](knowledge="white_box").strength is None
    assert ATTACKS["fang_trim"](knowledge="colluding").strength is None
    assert ATTACKS["random_scaling"](std=2.0).strength[0] == "std"


def test_the_plan_has_the_same_budget_for_every_attack(tables: dict[str, Any], tmp_path: Path) -> None:
    """Two defences x two attacks with a strength; min_max has none, and root_only is not tuned against.

    The reported seeds do not multiply the candidate runs.
    """
    sides = (["fedavg", "br_drag"], ["sign_flip", "random_scaling", "min_max"])
    tuning = plan_strengths(plan_arena(tables, *sides, seeds=[0, 1], out=tmp_path), 3)
    assert [len(part.planned) for part in tuning] == [3] * 4 and [len(part.cells) for part in tuning] == [2] * 4
    assert {part.cells[0].attack for part in tuning} == {"sign_flip", "random_scaling"}
    runs = [p for part in tuning for p in part.planned]
    assert len({p.folder for p in runs}) == 12 and all(p.folder.parent == tmp_path / "tuning" for p in runs)
    assert {(p.experiment.seed, p.experiment.evaluation.validation) for p in runs} == {(100, 0.1)}
    flipped = next(part for part in tuning if part.cells[0].attack == "sign_flip")
    assert flipped.setting == "scale" and flipped.candidates == [0.25, 2.0, 16.0]  # 2: of the experiment
    assert [p.experiment.attack.scale for p in flipped.planned] == [0.25, 2.0, 16.0]  # type: ignore[union-attr]


def test_the_most_harmful_candidate_is_reported(tables: dict[str, Any], tmp_path: Path) -> None:
    """Against the mean a longer negated update hurts more, and 16 most of all."""
    tables["rounds"] = 6
    dragfl.arena(tables, ["fedavg"], ["sign_flip", "min_max"], out=tmp_path, tune_attacks=3)
    stored = json.loads((tmp_path / MANIFEST).read_text())
    (tuned,) = stored["tuning"]["strengths"]
    assert (tuned["defence"], tuned["attack"], tuned["setting"]) == ("fedavg", "sign_flip", "scale")
    scores = dict(zip(tuned["candidates"], tuned["validation_accuracy"], strict=True))
    assert scores[tuned["selected"]] == min(scores.values()) and tuned["selected"] != 0.25
    cells = {cell["attack"]: cell["run"] for cell in stored["cells"]}
    run = dragfl.load_run(tmp_path / cells["sign_flip"])
    assert run.spec["attack"]["scale"] == tuned["selected"] and run.spec["seed"] == 0
    assert run.spec["evaluation"]["validation"] == 0.0
    (matrix,) = stored["numbers"]["matrices"]
    strengths = {a["attack"]: a["strength"] for a in matrix["defences"][0]["attacks"]}
    assert strengths == {
        "none": None, "min_max": None, "sign_flip": {"setting": "scale", "selected": tuned["selected"]},
    }  # fmt: skip


def test_an_interrupted_tuning_continues(tables: dict[str, Any], tmp_path: Path) -> None:
    sides: dict[str, Any] = {"out": tmp_path, "tune_attacks": 2}
    seen = 0

    def stop() -> bool:
        nonlocal seen
        seen += 1
        return seen == 5

    with pytest.raises(Interrupted, match="same command"):
        dragfl.arena(tables, ["median"], ["sign_flip"], callbacks=Callbacks(should_stop=stop), **sides)
    stored = json.loads((tmp_path / MANIFEST).read_text())
    assert [cell["run"] is None for cell in stored["cells"]] == [False, True], "the strength is not selected yet"
    assert dragfl.report.arena_numbers(tmp_path)["unfinished"] == 2
    ended: list[bool] = []
    callbacks = Callbacks(on_end=lambda run, already: ended.append(already))
    dragfl.arena(tables, ["median"], ["sign_flip"], callbacks=callbacks, **sides)
    assert ended.count(True) == 1 and len(ended) == 4
    before = (tmp_path / MANIFEST).read_bytes()
    dragfl.arena(tables, ["median"], ["sign_flip"], **sides)
    assert (tmp_path / MANIFEST).read_bytes() == before


def test_of_equal_candidates_the_default_is_kept(tables: dict[str, Any], tmp_path: Path) -> None:
    """FLTrust rescales updates, and a reversed one has weight 0 whatever its length: all four scores are equal."""
    sides: dict[str, Any] = {"out": tmp_path, "tune_attacks": 4, "root_only": False}
    dragfl.arena(tables, ["fltrust"], ["sign_flip"], **sides)
    (tuned,) = json.loads((tmp_path / MANIFEST).read_text())["tuning"]["strengths"]
    assert tuned["candidates"] == [0.25, 2.0, 4.0, 16.0]  # 2 replaces 1
    assert len(set(tuned["validation_accuracy"])) == 1 and tuned["selected"] == 2.0


@dataclass(frozen=True)
class Own:
    """An attack of the user with a strength; it fails for large values."""

    power: float = 1.0
    knowledge: ClassVar[str] = "own"
    strength: ClassVar[Any] = ("power", 0.5, 2.0)
    init = no_state

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        if self.power > 1:
            raise ValueError("too strong")
        return view.own, state


def test_a_candidate_that_fails_marks_its_cell(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ATTACKS, "own", Own)
    with pytest.raises(RunsFailed, match=r"1 of 5 runs failed(.|\n)*too strong"):
        dragfl.arena(tables, ["fedavg"], ["own", "min_max"], out=tmp_path, tune_attacks=3)
    stored = json.loads((tmp_path / MANIFEST).read_text())
    cells = {cell["attack"]: cell for cell in stored["cells"]}
    assert cells["own"]["failed"].startswith("a tuning run failed: ") and "too strong" in cells["own"]["failed"]
    assert "failed" not in cells["min_max"] and dragfl.load_run(tmp_path / cells["min_max"]["run"]).finished


def opposite(own: Any, honest: Any, scale: float = 1.0) -> Any:
    return (-scale * honest.mean(0)).expand_as(own)


opposite.strength = ("scale", 0.25, 16.0)  # type: ignore[attr-defined]


def test_a_plain_function_may_declare_a_strength(tables: dict[str, Any], tmp_path: Path) -> None:
    dragfl.arena(tables, ["fedavg"], [opposite], out=tmp_path, tune_attacks=2)
    stored = json.loads((tmp_path / MANIFEST).read_text())
    (tuned,) = stored["tuning"]["strengths"]
    assert tuned["candidates"] == [1.0, 16.0]
    run = dragfl.load_run(tmp_path / stored["cells"][1]["run"])
    assert run.spec["attack"]["scale"] == tuned["selected"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune_attacks": 1}, "tune_attacks 1"),
        ({"tune_attacks": "3"}, "tune_attacks '3'"),
        ({"tune_attacks": True}, "tune_attacks True"),
        ({"tune_attacks": 2, "seeds": [0, 100]}, "seed 100 is reserved for tuning"),
    ],
)
def test_mistakes_are_reported_before_the_first_run(
    tables: dict[str, Any], tmp_path: Path, options: Any, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        dragfl.arena(tables, ["fedavg"], ["sign_flip"], out=tmp_path / "a", **options)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("declared", ["power", ("power", 1.0), ("strong", 0.5, 2.0), ("power", 0, 2), ("power", 2, 1)])
def test_a_wrong_declaration_is_reported(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: Any
) -> None:
    monkeypatch.setitem(ATTACKS, "own", Own)
    monkeypatch.setattr(Own, "strength", declared)
    with pytest.raises(SpecError, match="attack 'own': strength is"):
        dragfl.arena(tables, ["fedavg"], ["own"], out=tmp_path / "a", tune_attacks=2)
