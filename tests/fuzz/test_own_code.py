"""User code that raises, at any time: the message has its key and name, then its traceback follows; exit code 2.

`bomb_x.py` has one part of every kind. Each counts its calls in a file and raises at the call number N.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragfl.cli import main

MODULE = '''
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import nn

import dragfl
from dragfl.aggregates.mean import Mean
from dragfl.corrections.none import NoCorrection
from dragfl.data.dataset import from_tensors
from dragfl.data.partitions import Split
from dragfl.types import NoState


def burn(place):
    """Raise at the N-th call from this place."""
    file, (where, number, kind) = Path(f"{place}.calls"), Path("fuse").read_text().split()
    calls = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (calls + 1))
    if place == where and calls + 1 == int(number):
        raise {"KeyError": KeyError, "RuntimeError": RuntimeError, "SystemExit": SystemExit}[kind]("boom")


def data():
    burn("data")
    y = torch.arange(40) % 2
    return from_tensors(torch.randn(40, 3), y, torch.randn(40, 3), y, name="mine")


def cut(labels, clients, rng):
    burn("cut")
    return np.array_split(np.arange(len(labels)), clients)


class Lazy:
    def __init__(self, split): self.split = split

    clients = property(lambda self: self.split.clients)
    sizes = property(lambda self: self.split.sizes)

    def samples_of(self, m):
        burn("samples_of")
        return self.split.samples_of(m)


def lazy(labels, clients, rng):
    return Lazy(Split.from_parts(np.array_split(np.arange(len(labels)), clients)))


def net(shape, classes):
    burn("net")
    return nn.Linear(3, classes)


class Net(nn.Linear):
    def __init__(self, shape, classes): super().__init__(3, classes)

    def forward(self, x):
        burn("forward")
        return super().forward(x)


def jitter(x, rng):
    burn("jitter")
    return x


def middle(updates):
    burn("middle")
    return updates.mean(0)


def opposite(own, honest):
    burn("opposite")
    return -own


@dataclass(frozen=True)
class Rule(Mean):
    def init(self, info):
        burn("init")
        return NoState()

    def finish(self, state, plan, partial):
        burn("finish")
        return super().finish(state, plan, partial)


@dataclass(frozen=True)
class Damped(NoCorrection):
    def client_finish(self, result, mine, sent, context):
        burn("client_finish")
        return super().client_finish(result, mine, sent, context)


@dataclass(frozen=True)
class Step:
    def init(self, info): return NoState()

    def update(self, state, step, w, context):
        burn("update")
        return w + step, state


@dataclass(frozen=True)
class Silent:
    knowledge: ClassVar[str] = "own"
    def init(self, info): return NoState()

    def craft(self, state, view, context):
        burn("craft")
        return view.own, state


def whole(c=0.5):
    burn("whole")
    return dragfl.Algorithm(NoCorrection(), Mean(), Step(), name="whole")


@dataclass(frozen=True)
class Refuses(Mean):
    def __post_init__(self): burn("made")
'''
SPEC = """
rounds = 3
[data]
dataset = "bomb_x:data"
[clients]
total = 4
local_steps = 2
batch_size = 5
[model]
name = "logistic"
[evaluation]
every = 1
"""
KINDS = {  # the place that raises -> (overrides, key, name)
    "data": ([], "data.dataset", "bomb_x:data"),
    "cut": (["data.partition=bomb_x:cut"], "data.partition", "bomb_x:cut"),
    "samples_of": (["data.partition=bomb_x:lazy"], "data.partition", ""),
    "net": (["model.name=bomb_x:net"], "model", "bomb_x:net"),
    "forward": (["model.name=bomb_x:Net"], "model", "bomb_x:Net"),
    "jitter": (["clients.augment=bomb_x:jitter"], "clients.augment", "bomb_x:jitter"),
    "middle": (["algorithm.aggregate=bomb_x:middle"], "algorithm.aggregate", "bomb_x:middle"),
    "opposite": (["attack={name='bomb_x:opposite',attackers=1}"], "attack", "bomb_x:opposite"),
    "init": (["algorithm.aggregate=bomb_x:Rule"], "algorithm.aggregate", "bomb_x:Rule"),
    "finish": (["algorithm.aggregate=bomb_x:Rule"], "algorithm.aggregate", "bomb_x:Rule.finish"),
    "client_finish": (["algorithm.correction=bomb_x:Damped"], "algorithm.correction", "bomb_x:Damped.client_finish"),
    "update": (["algorithm.server=bomb_x:Step"], "algorithm.server", "bomb_x:Step.update"),
    "craft": (["attack={name='bomb_x:Silent',attackers=1}"], "attack", "bomb_x:Silent.craft"),
    "whole": (["algorithm.name=bomb_x:whole"], "algorithm", "bomb_x:whole"),
    "made": (["algorithm.aggregate=bomb_x:Refuses"], "algorithm.aggregate", "bomb_x:Refuses"),
}
ONCE = ("data", "cut", "net", "whole", "made")  # called before the first round only
MOST = {
    **dict.fromkeys(ONCE, 1),
    "net": 4,
    "init": 4,
    **dict.fromkeys(["middle", "opposite", "finish", "update", "craft"], 3),
}  # calls
IN_WORKERS = {"craft": 2, "samples_of": 9}  # place -> the call that raises


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "bomb_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("bomb_x", None)


def check(place: str, printed: str, kind: str = "KeyError") -> None:
    _, key, name = KINDS[place]
    first, *rest = printed.splitlines()
    assert f"{key}: {name}" in first, printed
    assert f"raised {kind}: " in first
    assert ("bomb_x.py:" in first and first.endswith("; fix that line")) or first.endswith("; see its traceback")
    assert any(line.startswith("Traceback") for line in rest), printed
    assert 'raise {"KeyError"' in printed and 'bomb_x.py", line' in printed
    assert rest[-1].startswith(kind), printed


@pytest.mark.parametrize("place", KINDS)
@pytest.mark.parametrize("number", [1, 2, 5])
def test_every_kind_at_several_calls(place: str, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("fuse").write_text(f"{place} {number} KeyError")
    code = main(["run", "x.toml", *KINDS[place][0], "--out", "r", "--quiet"])
    raised = number <= MOST.get(place, 5)
    assert code == (2 if raised else 0)
    if raised:
        check(place, capsys.readouterr().err)
    assert Path("r/result.json").exists() == (not raised)


@pytest.mark.parametrize("place", [*ONCE, "init"])
def test_a_run_that_cannot_be_built_leaves_nothing(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where client states would go to a file in the run directory."""
    Path("fuse").write_text(f"{place} 1 RuntimeError")
    words = [*KINDS[place][0], "state.memory_mb=0"]
    words += [] if place in ("whole", "made", "init") else ["algorithm.name=scaffold"]
    assert main(["run", "x.toml", *words, "--out", "r", "--quiet"]) == 2
    check(place, capsys.readouterr().err, "RuntimeError")
    assert not Path("r").exists()


@pytest.mark.parametrize("place", IN_WORKERS)
def test_in_a_worker_process(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("fuse").write_text(f"{place} {IN_WORKERS[place]} KeyError")
    assert main(["run", "x.toml", *KINDS[place][0], "engine.workers=2", "--out", "r", "--quiet"]) == 2
    check(place, capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.parametrize("place", IN_WORKERS)
def test_in_a_worker_of_ray(place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    Path("fuse").write_text(f"{place} {IN_WORKERS[place]} KeyError")
    words = [*KINDS[place][0], "engine.executor=ray", "engine.workers=1"]
    assert main(["run", "x.toml", *words, "--out", "r", "--quiet"]) == 2
    check(place, capsys.readouterr().err)


def test_system_exit(capsys: pytest.CaptureFixture[str]) -> None:
    Path("fuse").write_text("middle 1 SystemExit")
    assert main(["run", "x.toml", *KINDS["middle"][0], "--out", "r", "--quiet"]) == 2
    check("middle", capsys.readouterr().err, "SystemExit")


@pytest.mark.parametrize("text", ["raise KeyError('at import')", "def net(:", "import nothing_of_this_name", "1 / 0"])
def test_a_module_that_cannot_be_imported(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bomb_x.py").write_text(text)
    assert main(["run", "x.toml", "--out", "r", "--quiet"]) == 2
    first, *rest = capsys.readouterr().err.splitlines()
    assert "data.dataset: " in first and "'bomb_x'" in first
    assert "import nothing" in text or 'bomb_x.py", line 1' in "\n".join(rest)
