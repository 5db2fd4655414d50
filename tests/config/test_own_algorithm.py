"""A whole algorithm or dataset of a user's own: an object, or `module:attr` from a file in the folder of the spec."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import dragfl
from dragfl.algorithms import PARTS
from dragfl.cli import main
from dragfl.errors import DamagedRun, Interrupted, SpecError
from tests.conftest import Load, kept_bytes

MODULE = '''
from dataclasses import dataclass

import torch

import dragfl
from dragfl.aggregates.mean import Mean
from dragfl.data.dataset import from_tensors
from dragfl.corrections.prox import FedProx as Prox
from dragfl.server_steps.momentum import Momentum


@dataclass(frozen=True)
class Halved:
    """Half of a step of plain SGD."""

    share: float = 0.5

    def init(self, setting): return Steps(0)
    def update(self, state, step, w, now): return w + self.share * step, Steps(state.count + 1)


@dataclass(frozen=True)
class Steps:
    count: int


halved = dragfl.Algorithm(Prox(mu=0.0), Mean(), Halved(), name="halved")


def gentle(beta=0.9, mu=0.01, share=None):
    """FedProx with server momentum, or with a shorter step."""
    server = Momentum(beta=beta) if share is None else Halved(share)
    return dragfl.Algorithm(Prox(mu=mu), Mean(), server, name="gentle")


def not_one():
    return 3


def data():
    y = torch.arange(90) % 3
    draws = torch.Generator().manual_seed(0)
    x = torch.eye(3)[y] + 0.1 * torch.randn(90, 3, generator=draws)
    return from_tensors(x[:60], y[:60], x[60:], y[60:], name="mine")


ready = data()
'''

SPEC = """
rounds = 4
[data]
dataset = "own_algorithm_x:data"
[clients]
total = 4
local_steps = 2
[algorithm]
name = "own_algorithm_x:gentle"
beta = 0.5
share = 0.25
[model]
name = "logistic"
[evaluation]
every = 1
[checkpoint]
every = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_algorithm_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_algorithm_x", None)


def parts(**named: dict[str, object]) -> dict[str, object]:
    """Built-in parts by name, as objects."""
    made = {part: dict(named.get(part, {"name": "none"})) for part in PARTS}
    return {part: PARTS[part][str(table.pop("name"))](**table) for part, table in made.items()}


DRAG = {"aggregate": {"name": "drag", "c": 0.4}, "server": {"name": "sgd"}}


def test_an_object_is_its_parts(experiment: Load) -> None:
    own = dragfl.Algorithm(**parts(**DRAG), name="mine")  # type: ignore[arg-type]
    records = list(dragfl.simulate(experiment(algorithm=own)))
    named = list(dragfl.simulate(experiment(algorithm={"name": "drag", "c": 0.4})))
    assert [r.metrics for r in records] == [r.metrics for r in named]
    assert [r.metrics for r in dragfl.simulate(experiment(algorithm={"name": own}))] == [r.metrics for r in named]
    assert experiment(algorithm=own).algorithm is own


def test_an_object_in_the_resolved_spec_and_resumed_from_it(experiment: Load, tmp_path: Path) -> None:
    """Of built-in parts the spec is whole: a digits run goes on without the object."""
    own = dragfl.Algorithm(**parts(**DRAG), name="mine")  # type: ignore[arg-type]
    spec = experiment(algorithm=own, data={"dataset": "digits"}, rounds=4)
    table = spec.tables()["algorithm"]
    assert table["name"] == "mine"
    assert (table["correction"]["name"], table["aggregate"]["name"], table["aggregate"]["c"]) == ("none", "drag", 0.4)
    assert dragfl.load(spec.tables()).tables() == spec.tables()
    whole = dragfl.run(spec, tmp_path / "whole")
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(asked))
    assert kept_bytes(dragfl.resume(tmp_path / "cut").path) == kept_bytes(whole.path)


def test_an_object_by_module_and_attribute(folder: Path) -> None:
    """halved moves half as far as FedAvg in the first round, bit for bit, since a half is exact."""
    (folder / "x.toml").write_text(SPEC.replace("gentle", "halved").replace("beta = 0.5\nshare = 0.25\n", ""))
    spec = dragfl.load("x.toml")
    assert spec.algorithm.name == "halved"
    mine, plain = dragfl.simulate(spec), dragfl.simulate(dragfl.load("x.toml", "algorithm.name=fedavg"))
    start = mine.state.w
    mine.step(), plain.step()
    torch.testing.assert_close(mine.state.w - start, 0.5 * (plain.state.w - start), atol=1e-7, rtol=0)


def test_a_function_of_the_settings(folder: Path) -> None:
    spec = dragfl.load("x.toml")
    assert spec.algorithm.server.share == 0.25  # type: ignore[attr-defined]
    other = dragfl.load("x.toml", "algorithm.name=own_algorithm_x:gentle", "algorithm.beta=0.3", "algorithm.mu=1.5")
    assert (other.algorithm.server.beta, other.algorithm.correction.mu) == (0.3, 1.5)  # type: ignore[attr-defined]
    plain = dragfl.load("x.toml", "algorithm.name=own_algorithm_x:gentle")
    assert plain.algorithm.server.beta == 0.9, "naming it again drops the settings of the file"  # type: ignore[attr-defined]


def test_the_resolved_spec_spells_it_out(folder: Path) -> None:
    tables = dragfl.load("x.toml").tables()
    assert tables["algorithm"]["name"] == "gentle"
    assert tables["algorithm"]["server"] == {"name": "own_algorithm_x:Halved", "share": 0.25}
    assert tables["algorithm"]["correction"] == {"name": "prox", "mu": 0.01}
    assert tables["data"]["dataset"] == "own_algorithm_x:data"
    assert dragfl.load(tables).tables() == tables


def test_stopped_and_resumed(folder: Path) -> None:
    whole = dragfl.run(dragfl.load("x.toml"), "whole")
    asked = iter([False, False, True])
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load("x.toml"), "cut", should_stop=lambda: next(asked))
    sys.modules.pop("own_algorithm_x")
    assert kept_bytes(dragfl.resume("cut").path) == kept_bytes(whole.path)


def test_from_the_command_line(
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "x.toml", "--quiet"]) == 0
    assert kept_bytes(folder / "runs/run-1") == kept_bytes(dragfl.run(dragfl.load("x.toml"), "here").path)
    (folder / "runs/run-1/result.json").unlink()
    sys.modules.pop("own_algorithm_x")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["resume", str(folder / "runs/run-1")]) == 6
    assert "cannot import 'own_algorithm_x'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["data", "ready"])
def test_a_dataset_or_what_makes_one(folder: Path, name: str) -> None:
    spec = dragfl.load("x.toml", f"data.dataset=own_algorithm_x:{name}", "algorithm.name=fedavg", "clients.lr=1.0")
    simulation = dragfl.simulate(spec)
    assert simulation.federation.worker.dataset.name == "mine"
    *_, last = simulation
    assert last.metrics["accuracy"] > 0.9


def test_a_function_that_makes_a_dataset_is_written_by_its_name(folder: Path) -> None:
    named = dragfl.load("x.toml", "data.dataset=own_algorithm_x:data")
    function = sys.modules["own_algorithm_x"].data
    assert dragfl.load({**named.tables(), "data": {"dataset": function}}).dataset == "own_algorithm_x:data"
    with pytest.raises(SpecError, match=r"<lambda> cannot be imported by name; give the Dataset it returns"):
        dragfl.load({"data": {"dataset": lambda: function()}})
    with pytest.raises(SpecError, match=r"a Experiment given; give a TOML file or tables"):
        dragfl.sweep(named, {"seed": [0]}, "s")  # type: ignore[arg-type]


def test_a_sweep_over_own_and_built_in(folder: Path) -> None:
    grid = {"algorithm.name": ["own_algorithm_x:halved", "own_algorithm_x:gentle", "fedavg"], "seed": [0]}
    runs = dragfl.sweep("x.toml", grid, "out")
    assert [run.path.name for run in runs] == [
        "own_algorithm_x_halved-seed0", "own_algorithm_x_gentle-seed0", "fedavg-seed0",
    ]  # fmt: skip
    assert {row.label for row in dragfl.report.summarize_runs("out")} == {"halved", "gentle", "fedavg"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.name=own_algorithm_x:gentel", "has no 'gentel'; did you mean 'gentle'"),
        ("algorithm.name=nowhere_x:gentle", "algorithm.name: cannot import 'nowhere_x'"),
        ("algorithm.name=own_algorithm_x:not_one", "is a int; it must be a dragfl.Algorithm"),
        ("algorithm.name=own_algorithm_x:ready", "it must be a dragfl.Algorithm"),
        ("algorithm.betta=0.1", "own_algorithm_x:gentle does not take"),
        ("data.dataset=own_algorithm_x:nothing", "data.dataset: module 'own_algorithm_x' has no 'nothing'"),
        ("data.dataset=nowhere_x:data", "data.dataset: cannot import 'nowhere_x'"),
    ],
)
def test_mistakes(folder: Path, override: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.load("x.toml", override)
    assert message in str(error.value)


def test_settings_of_an_object_are_its_own(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"halved is an object, so it takes no settings; got .*beta"):
        dragfl.load("x.toml", "algorithm.name=own_algorithm_x:halved", "algorithm.beta=0.1")


def test_a_dataset_that_is_none(folder: Path) -> None:
    with pytest.raises(SpecError, match="own_algorithm_x:not_one is a int; it must be a Dataset or make one"):
        dragfl.simulate(dragfl.load("x.toml", "data.dataset=own_algorithm_x:not_one"))


def test_an_algorithm_of_things_that_are_no_parts(experiment: Load) -> None:
    with pytest.raises(
        SpecError,
        match=r"algorithm\.aggregate: builtins:object has no 'init'; see the contract",
    ):
        experiment(algorithm=dragfl.Algorithm(**{**parts(**DRAG), "aggregate": object()}, name="bad"))  # type: ignore[arg-type]


def test_a_run_of_an_own_part_needs_it_to_resume(folder: Path) -> None:
    asked = iter([True])
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load("x.toml"), "cut", should_stop=lambda: next(asked))
    (folder / "own_algorithm_x.py").rename(folder / "gone.py")
    sys.modules.pop("own_algorithm_x")
    with pytest.raises(DamagedRun, match="resume where it can be imported"):
        dragfl.resume("cut")
