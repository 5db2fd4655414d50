"""A spec repeats its run or says that it cannot: objects without a name are marked, and loading them is an error."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dragfl
from dragfl.aggregates.mean import Mean
from dragfl.attacks import SignFlip
from dragfl.cli import main
from dragfl.config.portable import why_not_portable
from dragfl.config.registry import describe, same
from dragfl.errors import SpecError
from dragfl.own_code import spec_name
from dragfl.types import NoState
from tests.conftest import Load, kept_bytes


@dataclass(frozen=True)
class Scaled(Mean):
    """A part that a spec can name, with its settings."""

    factor: float = 1.0


@dataclass(frozen=True)
class WithTensor(Mean):
    """A part with a setting that TOML cannot write."""

    direction: torch.Tensor | None = None


class Plain:
    """A part that is no dataclass."""

    knowledge = "own"

    def __init__(self, portion: float = 0.5) -> None:
        self.portion = portion

    def init(self, info: Any) -> NoState:
        return NoState()

    def craft(self, state: Any, view: Any, context: Any) -> Any:
        return view.own, state


class Net(nn.Module):
    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(6, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def net(shape: Any, classes: int) -> nn.Module:
    return nn.Linear(6, classes)


RULE = Scaled(factor=3.0)
WEIGHTS = nn.Linear(6, 3)
HERE = __name__


def local_class() -> type:
    @dataclass(frozen=True)
    class Local(Mean):
        factor: float = 2.0

    return Local


UNNAMED: dict[str, tuple[dict[str, Any], str, str]] = {  # tables, key, the name in the spec
    "module object": ({"model": {"name": nn.Sequential(nn.Linear(6, 3))}}, "model.name", "object:Sequential"),
    "module of an importable class": ({"model": {"name": Net((6,), 3)}}, "model.name", "object:Net"),
    "lambda": ({"model": {"name": lambda shape, classes: nn.Linear(6, classes)}}, "model.name", "object:<lambda>"),
    "partial": ({"model": {"name": functools.partial(net)}}, "model.name", "object:partial"),
    "local class": ({"algorithm": {"aggregate": local_class()()}}, "algorithm.aggregate.name", "object:Local"),
    "tensor": (
        {"algorithm": {"aggregate": WithTensor(direction=torch.ones(2))}},
        "algorithm.aggregate.name",
        "object:WithTensor",
    ),
}


@pytest.mark.parametrize("case", UNNAMED)
def test_objects_without_a_name_are_marked(experiment: Load, tmp_path: Path, case: str) -> None:
    tables, key, name = UNNAMED[case]
    spec = experiment(**tables, data={"dataset": "digits" if key != "model.name" else None, "partition": "iid"})
    found: Any = spec.tables()
    for part in key.split("."):
        found = found[part]
    assert found == name
    assert why_not_portable(spec, "stop") is not None
    (tmp_path / "spec.toml").write_text(spec.to_toml())
    with pytest.raises(SpecError) as error:
        dragfl.load(tmp_path / "spec.toml")
    message = str(error.value)
    assert message.startswith(f"{tmp_path}/spec.toml:")
    assert f": {key}: '{name}' marks a Python object that a spec cannot name" in message
    assert "give the object again from Python, or define it at the top level of a module" in message


@pytest.mark.parametrize(
    ("tables", "part", "table"),
    [
        ({"model": {"name": Net}}, "model", {"name": f"{HERE}:Net"}),
        ({"model": {"name": net}}, "model", {"name": f"{HERE}:net"}),
        ({"model": {"name": f"{HERE}:WEIGHTS"}}, "model", {"name": f"{HERE}:WEIGHTS"}),
        ({"algorithm": {"aggregate": Scaled(factor=2.0)}}, "aggregate", {"name": f"{HERE}:Scaled", "factor": 2.0}),
        ({"algorithm": {"aggregate": f"{HERE}:RULE"}}, "aggregate", {"name": f"{HERE}:Scaled", "factor": 3.0}),
        ({"attack": {"name": SignFlip(), "attackers": 1}}, "attack", {"name": "sign_flip"}),
        ({"attack": {"name": Plain(), "attackers": 1}}, "attack", {"name": f"{HERE}:Plain"}),
        ({"attack": {"name": Plain(0.25), "attackers": 1}}, "attack", {"name": f"{HERE}:Plain", "portion": 0.25}),
    ],
)
def test_what_can_be_named_comes_back(
    experiment: Load, tables: dict[str, Any], part: str, table: dict[str, Any]
) -> None:
    """The spec gives back the same class, function or instance, or an equal one."""
    spec = experiment(**tables)
    found = spec.tables()
    written = found["algorithm"][part] if part == "aggregate" else found[part]
    assert table.items() <= written.items()
    again = dragfl.load({**found, "data": {"dataset": spec.dataset}})
    assert again.tables()["algorithm"] == found["algorithm"]
    assert same(again.attack, spec.attack)
    assert again.model.make is spec.model.make


def test_running_such_a_spec(
    experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with exit code 2, and the object given again repeats the run."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    tables = {"rounds": 2, "clients": {"total": 3, "local_steps": 1}, "model": {"name": module}}
    run = dragfl.run(tables, "runs/obj")
    assert main(["run", "runs/obj/spec.toml", "--out", "again"]) == 2
    assert "model.name: 'object:Sequential' marks a Python object" in capsys.readouterr().err
    assert not Path("again").exists()
    assert kept_bytes(dragfl.run(tables, "again").path) == kept_bytes(run.path)


def test_a_class_of_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.toml").write_text('[model]\nname = "__main__:NetOfAScript"\n')
    assert main(["run", str(tmp_path / "spec.toml")]) == 2
    error = capsys.readouterr().err
    assert "model.name: '__main__:NetOfAScript' is defined in a script or notebook that is not running here" in error


def test_a_class_that_was_defined_again(experiment: Load, tmp_path: Path, notebook: Any) -> None:
    """The experiment holds the first class, and its name now stands for the second one. Equal code is the same run."""
    first = experiment(model={"name": notebook()})
    assert first.tables()["model"]["name"] == "notebook_y:Net"
    run = dragfl.run(first, tmp_path / "r")
    second = experiment(model={"name": notebook()})
    assert first.tables()["model"]["name"] == "object:Net"
    assert dragfl.run(first, tmp_path / "r").result == dragfl.run(second, tmp_path / "r").result == run.result
    with pytest.raises(SpecError, match=r"the code of model\.name"):
        dragfl.run(experiment(model={"name": notebook("2 * x")}), tmp_path / "r")


@pytest.fixture
def notebook() -> Iterator[Any]:
    module = type(sys)("notebook_y")
    sys.modules["notebook_y"] = module

    def define(result: str = "x") -> type:
        code = (
            "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, shape, classes):\n"
            "        super().__init__()\n        self.layer = nn.Linear(6, classes)\n"
            f"    def forward(self, x): return self.layer({result})\n"
        )
        exec(code, vars(module))
        return vars(module)["Net"]  # type: ignore[no-any-return]

    yield define
    del sys.modules["notebook_y"]


def test_a_constructor_with_an_error_is_no_name() -> None:
    """The class cannot be made again from the attributes."""

    assert describe(Odd(1), {})["name"] == "object:Odd"
    assert spec_name(Odd) == f"{HERE}:Odd"


class Odd:
    def __init__(self, value: int) -> None:
        if isinstance(value, str):
            raise RuntimeError
        self.value = str(value)


def test_same() -> None:
    assert same(Scaled(factor=2.0), Scaled(factor=2.0))
    assert same(Plain(0.1), Plain(0.1))
    assert not same(Plain(0.1), Plain(0.2))
    assert not same(WithTensor(direction=torch.ones(1)), WithTensor(direction=torch.ones(1))), "tensors have no name"
    assert not same(Scaled(), Mean())
    assert same({"a": [1, (2,)]}, {"a": [1, (2,)]})
