"""A user's own parts from a file in the folder of the spec: `module:attr`, with settings, resumed like any other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dragfl
from dragfl.errors import DamagedRun, Interrupted, SpecError
from tests.conftest import Load, kept_bytes

MODULE = '''
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from dragfl.types import NoState, Partial


@dataclass(frozen=True)
class Clipped:
    """The mean of updates cut to a length, which halves when it is exceeded by all."""

    radius: float = 1.0

    def init(self, setting): return Radius(self.radius, torch.zeros(setting.dim))
    def needs(self, state): return frozenset()
    def begin(self, state, now, given, setting): return state

    def fold(self, plan, block):
        share = (plan.radius / block.norm.clamp_min(1e-12)).clamp_max(1.0)
        return Partial.of(block, {"sum": share.float() @ block.delta}, {"norm": block.norm, "share": share})

    def finish(self, state, plan, partial):
        step = (partial.sums["sum"] / partial.count).float()
        return step, Radius(state.radius * 0.9, state.past + step), {"radius": state.radius}


@dataclass(frozen=True)
class Radius:
    radius: float
    past: torch.Tensor


class Silent:
    """Not a dataclass: settings go to __init__."""

    knowledge = "own"

    def __init__(self, share=0.0): self.share = share
    def init(self, setting): return NoState()

    def craft(self, state, view, now):
        from dataclasses import replace
        return replace(view.own, delta=view.own.delta * self.share), state


def net(shape, classes, width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh(), nn.Linear(width, classes))
'''

SPEC = """
rounds = 4
[clients]
total = 6
local_steps = 2
[algorithm]
aggregate = { name = "own_parts_x:Clipped", radius = 0.05 }
[attack]
name = "own_parts_x:Silent"
attackers = 2
[model]
name = "own_parts_x:net"
width = 3
[checkpoint]
every = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_parts_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_parts_x", None)


def test_from_the_current_folder(folder: Path) -> None:
    path = list(sys.path)
    experiment = dragfl.load("x.toml")
    assert sys.path == path
    assert experiment.algorithm.name == "own_parts_x:Clipped"
    records = list(dragfl.simulate(experiment))
    assert records[0].metrics["radius"] == 0.05
    assert records[1].metrics["radius"] == pytest.approx(0.045)
    assert [n == 0.0 for n in records[0].clients["norm"]] == records[0].clients["attacker"]


def test_the_resolved_spec_names_them(folder: Path) -> None:
    tables = dragfl.load("x.toml").tables()
    assert tables["algorithm"]["aggregate"] == {"name": "own_parts_x:Clipped", "radius": 0.05}
    assert tables["model"] == {"name": "own_parts_x:net", "width": 3, "double_softmax": False, "buffers": "refuse"}
    assert dragfl.load(tables).tables() == tables


def test_they_resume(folder: Path) -> None:
    """Their state, a number and a tensor, is in the checkpoint like any other."""
    whole = dragfl.run(dragfl.load("x.toml"), "whole")
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load("x.toml"), "cut", should_stop=lambda: next(asked))
    table = json.loads((folder / "cut" / "checkpoint.json").read_text())
    assert table["numbers"] == {"aggregate.radius": pytest.approx(0.05 * 0.9**2)}
    sys.modules.pop("own_parts_x")
    assert kept_bytes(dragfl.resume("cut").path) == kept_bytes(whole.path)


def test_resumed_from_elsewhere_says_what_is_missing(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load("x.toml"), "cut", should_stop=lambda: next(asked))
    sys.modules.pop("own_parts_x")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(DamagedRun, match=r"cannot import 'own_parts_x'.*resume where it can be imported"):
        dragfl.resume(folder / "cut")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.aggregate.radios=1", "algorithm.aggregate.radios: unknown key 'radios'; did you mean 'radius'"),
        ("algorithm.aggregate.radius=true", "algorithm.aggregate.radius: expected `float`, got `bool`"),
        ("attack.shar=1", "unexpected keyword argument 'shar'"),
        ("algorithm.aggregate=own_parts_x:Cliped", "module 'own_parts_x' has no 'Cliped'; did you mean 'Clipped'"),
        ("algorithm.aggregate=own_parts_x:Radius", "algorithm.aggregate.radius: missing; give radius = a number"),
        ("algorithm.aggregate=own_parts_x:net", "own_parts_x:net needs a value of 'classes'; a rule is a function"),
    ],
)
def test_mistakes(folder: Path, override: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.load("x.toml", override)
    assert message in str(error.value)


def test_a_dataset_object_needs_its_experiment_to_resume(experiment: Load, tmp_path: Path) -> None:
    spec = experiment()
    asked = iter([True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "r", should_stop=lambda: next(asked))
    with pytest.raises((DamagedRun, SpecError), match="object:toy"):
        dragfl.resume(tmp_path / "r")
    with pytest.raises(SpecError, match="holds a run of another experiment"):
        dragfl.resume(tmp_path / "r", experiment(clients={"lr": 0.3}))
    assert dragfl.resume(tmp_path / "r", spec).finished


@pytest.mark.parametrize(
    ("part", "value"), [("algorithm", {"aggregate": object()}), ("attack", {"name": 3, "attackers": 1})]
)
def test_objects_that_are_no_parts(experiment: Load, part: str, value: Any) -> None:
    with pytest.raises(SpecError, match=r"see the contract in dragfl\.types|attack: 3 is no name; give one of"):
        experiment(**{part: value})


def test_an_attack_object_has_its_own_settings(experiment: Load) -> None:
    from dragfl.attacks import SignFlip

    with pytest.raises(SpecError, match=r"attack\.scale: the attack is an object"):
        experiment(attack={"name": SignFlip(), "attackers": 1, "scale": 2.0})


def test_a_module_object_and_its_final_model(experiment: Load, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    run = dragfl.run(experiment(model={"name": module}), tmp_path / "r")
    module.load_state_dict(run.model())
    data = experiment().dataset
    accuracy = (module(data.test_x).argmax(1) == data.test_y).double().mean().item()
    assert accuracy == run.metrics[-1]["accuracy"]
    assert not torch.equal(module[0].weight, torch.zeros(4, 6))


def test_an_import_error_names_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_here.py").write_text("x = = 1\n")
    (tmp_path / "wants_more.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(SpecError, match="importing 'broken_here' failed with SyntaxError"):
        dragfl.load({"algorithm": {"aggregate": "broken_here:X"}})
    with pytest.raises(SpecError, match="'wants_more' imports a module that is not installed"):
        dragfl.load({"algorithm": {"aggregate": "wants_more:X"}})


def test_run_and_simulate_take_tables_and_files(tmp_path: Path) -> None:
    tables = {"rounds": 1, "model": {"name": "logistic"}}
    assert len(list(dragfl.simulate(tables))) == 1
    (tmp_path / "one.toml").write_text('rounds = 1\n[model]\nname = "logistic"\n')
    assert dragfl.run(tmp_path / "one.toml", tmp_path / "run").finished
