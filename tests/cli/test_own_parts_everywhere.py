"""Parts of a user's own work wherever a built-in name does: every kind of part with every command."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragfl
from dragfl import functional
from dragfl.cli import main
from dragfl.errors import PartError, SpecError
from dragfl.runs.sweep_plan import parse_grid, split_commas
from tests.conftest import kept_bytes

MODULE = '''
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn

import dragfl
from dragfl.aggregates.mean import Mean
from dragfl.corrections.none import NoCorrection, no_needs, nothing_kept, nothing_sent, step_unchanged
from dragfl.data.dataset import from_tensors
from dragfl.data.partitions import Split
from dragfl.types import Affine, NoState, Partial, no_state


def middle(updates, power=1):
    return power * (updates.amin(0) + updates.amax(0)) / 2


def guided(updates, root):
    return updates.mean(0) * (updates.mean(0) @ root > 0)


@dataclass(frozen=True)
class Rule:
    scale: float = 1.0
    init = no_state

    def needs(self, state): return frozenset()
    def begin(self, state, context, inputs, info): return state
    def fold(self, plan, block): return Partial.of(block, {"sum": block.delta.sum(0)}, {"norm": block.norm})

    def finish(self, state, plan, partial):
        return (self.scale * partial.sums["sum"] / partial.count).float(), state, {}


@dataclass(frozen=True)
class Pairs:
    """A pre-aggregator: every row becomes the mean of itself and the next."""

    name: ClassVar[str] = "pairs"

    def matrix(self, gram, f, rng):
        eye = torch.eye(len(gram), dtype=torch.float64)
        return (eye + eye.roll(1, 1)) / 2


@dataclass(frozen=True)
class Short:
    share: float = 0.5
    init = no_state

    def update(self, state, step, w, context): return w + self.share * step, state


@dataclass(frozen=True)
class Damped:
    rho: float = 0.5
    fields: ClassVar[dict] = {}
    sends: ClassVar[dict] = {}
    init, needs, broadcast, client_finish, server_finish = (
        no_state, no_needs, nothing_sent, nothing_kept, step_unchanged
    )

    def affine(self, mine, sent, context): return Affine(scale=self.rho)


def mixed(share=0.25):
    return dragfl.Algorithm(Damped(), Rule(), Short(share), name="mixed")


def opposite(own, honest, rng, scale=1.0):
    return (-scale * honest.mean(0)).expand_as(own)


@dataclass(frozen=True)
class Silent:
    share: float = 0.0
    knowledge: ClassVar[str] = "own"
    init = no_state

    def craft(self, state, view, context):
        return replace(view.own, delta=self.share * view.own.delta), state


def data():
    y = torch.arange(90) % 3
    x = torch.eye(3)[y] + 0.1 * torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    return from_tensors(x[:60], y[:60], x[60:], y[60:], name="mine")


class Net(nn.Sequential):
    def __init__(self, num_classes, width=4):
        super().__init__(nn.Flatten(), nn.Linear(3, width), nn.Linear(width, num_classes))


@dataclass(frozen=True)
class Strided:
    step: int = 1

    def __call__(self, labels, clients, rng):
        return Split.from_parts([np.arange(m, len(labels), clients) for m in range(clients)])


class Misspelt(Damped):
    fields: ClassVar[dict] = {"c": "vectr"}


class Listed(Damped):
    sends: ClassVar[list] = ["c"]


class Wrong(Damped):
    def affine(self, mine, sent, context): return Affine(shift=torch.zeros(2))


class Assumes(Rule):
    f = None  # no setting, so it cannot be set
    def shortage(self, n): return None


def verbose(updates): raise ValueError("two\\nlines")


def leaving(updates): raise SystemExit(3)


def cut(labels, clients, rng):
    return np.array_split(np.arange(len(labels)), clients)
'''

SPEC = """
name = "own"
rounds = 1
[data]
dataset = "parts_x:data"
[root]
size = 6
[clients]
total = 5
local_steps = 1
batch_size = 5
[model]
name = "parts_x:Net"
[evaluation]
every = 1
[algorithms."parts_x:middle"]
power = 2
[algorithms."parts_x:mixed"]
share = 0.75
[attacks."parts_x:opposite"]
scale = 3.0
"""

AGGREGATES = ["parts_x:middle", "parts_x:guided", "parts_x:Rule"]
CHAINS = ["nnm+parts_x:middle", "parts_x:Pairs+median", "parts_x:Pairs+parts_x:Rule"]
DEFENCES = [*AGGREGATES, *CHAINS, "parts_x:mixed", "parts_x:Damped", "parts_x:Short", "median"]
ATTACKS = ["parts_x:opposite", "parts_x:Silent", "sign_flip"]

# (what, words of `key=a,b`): each value is one run, a sweep or an override
WORDS = {
    "aggregate": "algorithm.aggregate=" + ",".join(AGGREGATES),
    "chain": 'algorithm.aggregate={chain=["nnm","parts_x:middle"],f=1},{chain=["parts_x:Pairs","median"]}',
    "chain in a word": "algorithm.name=nnm+parts_x:middle,parts_x:Pairs+median",
    "server step": 'algorithm.server=parts_x:Short,{name="parts_x:Short",share=0.1}',
    "correction": "algorithm.correction=parts_x:Damped",
    "algorithm": "algorithm.name=parts_x:mixed,parts_x:middle,parts_x:Short,fedavg",
    "attack": "attack.name=parts_x:opposite,parts_x:Silent",
    "partition": 'data.partition=parts_x:cut,{kind="parts_x:Strided",step=2}',
    "dataset": "data.dataset=parts_x:data",
    "model": "model.width=2,5",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "parts_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    yield tmp_path
    sys.modules.pop("parts_x", None)


def attackers(kind: str) -> list[str]:
    return ["attack.attackers=1"] if kind == "attack" else []


@pytest.mark.parametrize("kind", WORDS)
def test_run(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    key, _, values = WORDS[kind].partition("=")
    for i, value in enumerate(split_commas(values)):
        assert main(["run", "x.toml", f"{key}={value}", *attackers(kind), "--out", f"r{i}", "--quiet"]) == 0
        spec = dragfl.load(f"r{i}/spec.toml")
        assert dragfl.load(spec.tables()) == spec
    assert not capsys.readouterr().err


@pytest.mark.parametrize("kind", WORDS)
def test_sweep_and_labels(kind: str) -> None:
    dragfl.sweep("x.toml", parse_grid([WORDS[kind], *attackers(kind), "seed=0"]), "s")
    labels = [row.label for row in dragfl.report.summarize_runs("s")]
    assert len(labels) == len(set(labels)) == len(list(Path("s").glob("*/result.json")))


def test_the_command_sweep_and_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algorithm.name=parts_x:mixed,parts_x:middle", "seed=0", "--out", "s", "--jobs", "1"]
    assert main(["sweep", "x.toml", *words]) == 0
    printed = capsys.readouterr()
    assert not printed.err and "mixed" in printed.out and "middle" in printed.out
    page = Path("s/report.html").read_text()
    assert "mixed" in page and "middle" in page


def test_labels() -> None:
    """The name without its module, the settings where they differ."""
    grid = {"algorithm.aggregate": ["parts_x:Rule", {"name": "parts_x:Rule", "scale": 2.0}, "parts_x:middle"]}
    dragfl.sweep("x.toml", grid, "s")
    labels = {row.label for row in dragfl.report.summarize_runs("s")}
    assert labels == {"Rule · scale=1.0", "Rule · scale=2.0", "middle"}


def test_arena(capsys: pytest.CaptureFixture[str]) -> None:
    sides = ["--defences", ",".join(DEFENCES), "--attacks", ",".join(ATTACKS), "--partitions", "iid,parts_x:cut"]
    assert main(["arena", "x.toml", *sides, "--fractions", "0.2", "--out", "a", "--dry-run"]) == 0
    assert (
        len(capsys.readouterr().out.splitlines()) == (1 + len(DEFENCES)) * (1 + len(ATTACKS)) * 2
    )  # root_only is a row
    sides = ["--defences", "parts_x:middle,parts_x:guided,nnm+parts_x:Rule", "--attacks", "parts_x:opposite"]
    assert main(["arena", "x.toml", *sides, "--fractions", "0.2", "--out", "a", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "guided †" in printed and "nnm+" in printed
    cells = json.loads(Path("a/arena.json").read_text())["cells"]
    assert all("run" in cell for cell in cells)
    assert {cell["defence"] for cell in cells} >= {"parts_x:middle", "parts_x:guided", "nnm+parts_x:Rule"}
    for path in Path("a/runs").iterdir():  # named settings are those of the tables
        tables = dragfl.load_run(path).spec
        if tables["algorithm"]["name"] == "parts_x:middle":
            assert tables["algorithm"]["aggregate"]["power"] == 2
        if "attack" in tables:
            assert tables["attack"]["scale"] == 3.0


def test_arena_of_objects() -> None:
    """From Python a defence, an attack or a partition may be the object itself."""
    parts_x: Any = importlib.import_module("parts_x")
    defences = [parts_x.middle, parts_x.Rule(2.0), parts_x.mixed(), "median"]
    runs = dragfl.arena(
        "x.toml", defences, [parts_x.opposite, parts_x.Silent()], partitions=[parts_x.cut], fractions=[0.2], out="a"
    )
    assert len(runs) == 4 * 3
    manifest = json.loads(Path("a/arena.json").read_text())
    assert manifest["defences"] == ["middle", "Rule", "mixed", "median"]
    assert manifest["attacks"] == ["opposite", "Silent"]
    with pytest.raises(SpecError, match="two of the defences are called 'Rule'; give them different names"):
        dragfl.arena("x.toml", [parts_x.Rule(), parts_x.Rule(3.0)], ["sign_flip"], out="b")


def test_sweep_of_objects() -> None:
    parts_x: Any = importlib.import_module("parts_x")
    grid = {"algorithm.aggregate": [parts_x.middle, parts_x.Rule(2.0), "median"], "model.width": [3]}
    runs = dragfl.sweep("x.toml", grid, "s")
    assert [run.path.name.partition("-")[0] for run in runs] == [f"aggregate{n}" for n in ("middle", "Rule", "median")]


@pytest.mark.parametrize("name", [*AGGREGATES, *CHAINS])
def test_functional(name: str) -> None:
    """Three identical updates: every rule here returns them, in the kind it was given."""
    rows = np.array([[1.0, -2.0]] * 3)
    step = functional.aggregate(name, rows, root=np.array([1.0, 0.0]))
    assert isinstance(step, np.ndarray) and step.tolist() == [1.0, -2.0]
    assert functional.aggregate(name, torch.tensor(rows), root=torch.tensor([1.0, 0.0])).tolist() == [1.0, -2.0]


def test_functional_takes_settings() -> None:
    assert functional.aggregate("parts_x:Rule", np.ones((2, 3)), scale=2.0).tolist() == [2.0] * 3
    assert functional.aggregate("parts_x:middle", np.ones((2, 3)), power=3).tolist() == [3.0] * 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithms.parts_x:nothing.c=1", "algorithms.parts_x:nothing.name: module 'parts_x' has no 'nothing'"),
        ("algorithm.aggregate=parts_x:Strided", "Strided has no 'init'; see the contract"),
        ('algorithm.aggregate={chain=["parts_x:middle","median"]}', "is no pre-aggregator, so it comes last"),
        ('algorithm.aggregate={chain=["nnm","parts_x:nothing"]}', "module 'parts_x' has no 'nothing'"),
        ('algorithm.aggregate={chain=["nnm",{name="parts_x:middle",pover=2}]}', "'pover'; did you mean 'power'"),
        ('algorithm.aggregate={chain=["nnm",{name="parts_x:middle",power=2.5}]}', "chain[1].power: expected `int`"),
        ('algorithm.aggregate={chain=[{name="bucketing",size="x"},"median"]}', "chain[0].size: expected `int`"),
        ("algorithm.aggregate=parts_x.py:middle", "cannot import 'parts_x.py'"),
        ("algorithm.aggregate=parts_x.py:middle", "; write parts_x:middle\n"),
        ("algorithm.aggregate=parts_x:verbose", "parts_x:verbose raised ValueError: two lines (parts_x.py:"),
        ("algorithm.aggregate=parts_x:leaving", "parts_x:leaving raised SystemExit: 3 (parts_x.py:"),
        ("algorithm.aggregate=parts_x:Assumes", "parts_x:Assumes raised TypeError: "),
        ("algorithm.correction=parts_x:Misspelt", "fields of parts_x:Misspelt has 'vectr'; choose among 'vector'"),
        ("algorithm.correction=parts_x:Listed", "sends of parts_x:Listed is ['c']; give a dictionary"),
        ("algorithm={name='parts_x:middle',aggregate='median'}", "parts_x:middle is the aggregate already"),
    ],
)  # fmt: skip
def test_mistakes(override: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x.toml", override, "--out", "r", "--quiet"]) == 2
    printed = capsys.readouterr().err
    first, *rest = printed.splitlines()
    assert message.rstrip() in first and (not rest or rest[0].startswith("Traceback of your code"))


def test_named_settings_of_own_parts_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("y.toml").write_text(SPEC + "scales = 1\n")
    assert main(["run", "y.toml", "--out", "r", "--quiet"]) == 2
    assert "attacks.parts_x:opposite.scales: parts_x:opposite has no setting 'scales'" in capsys.readouterr().err
    Path("y.toml").write_text(SPEC.replace("parts_x:opposite", "parts_x:data"))
    assert main(["run", "y.toml", "--out", "r", "--quiet"]) == 2
    assert "attacks.parts_x:data: parts_x:data has no parameter 'own'; an attack is" in capsys.readouterr().err
    Path("y.toml").write_text(SPEC.replace("power = 2", "pover = 2"))
    assert main(["run", "y.toml", "--out", "r", "--quiet"]) == 2
    assert "algorithms.parts_x:middle.pover: parts_x:middle has no setting 'pover'" in capsys.readouterr().err


def test_overrides_of_an_own_algorithm() -> None:
    """The name gives one part; the others can be replaced."""
    made = dragfl.load("x.toml", "algorithm.name=parts_x:middle", "algorithm.server=momentum", "algorithm.power=3")
    assert (made.algorithm.aggregate.settings, made.algorithm.server.beta) == ({"power": 3}, 0.9)  # type: ignore[attr-defined]
    resolved = dragfl.load(made.tables(), "algorithm.server.beta=0.5")
    assert resolved.algorithm.server.beta == 0.5  # type: ignore[attr-defined]
    with pytest.raises(SpecError, match=r"algorithm\.aggregate: parts_x:middle is the aggregate already"):
        dragfl.load("x.toml", "algorithm.name=parts_x:middle", "algorithm.aggregate=median")


def test_in_worker_processes() -> None:
    """All of them at once, by name, in two worker processes: the same bytes as in one."""
    overrides: list[Any] = [
        'algorithm.aggregate={chain=["parts_x:Pairs","parts_x:middle"]}',
        "algorithm.server=parts_x:Short",
        "algorithm.correction=parts_x:Damped",
        "attack.name=parts_x:opposite",
        "attack.attackers=1",
        "data.partition=parts_x:cut",
    ]
    one = dragfl.run(dragfl.load("x.toml", *overrides), "one")
    two = dragfl.run(dragfl.load("x.toml", *overrides, "engine.workers=2"), "two")
    assert kept_bytes(one.path) == kept_bytes(two.path)
    with pytest.raises(PartError, match=r"parts_x:Wrong\.affine: shift is torch\.float32 of shape \(2,\)"):
        dragfl.run(dragfl.load("x.toml", "algorithm.correction=parts_x:Wrong", "engine.workers=2"), "wrong")
