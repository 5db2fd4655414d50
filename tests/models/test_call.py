"""Ways to give a model: classes with ordinary constructors, instances, functions; what the error says was tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dragfl
from dragfl.errors import PartError, SpecError
from dragfl.models.call import call_model
from tests.conftest import Load


class Fixed(nn.Module):
    """`Fixed()`: for six features and three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x)
        return out


class Classes(Fixed):
    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.linear = nn.Linear(6, num_classes)


class Channels(nn.Sequential):
    def __init__(self, in_channels: int, n_classes: int, width: int = 2) -> None:
        super().__init__(nn.Linear(in_channels, width), nn.Linear(width, n_classes))


def by_position(what: tuple[int, ...], how_many: int, width: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(what[0], width), nn.Linear(width, how_many))


def variadic(*given: Any) -> nn.Module:
    return nn.Linear(given[0][0], given[1])


def broken(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(shape + 1, classes)  # type: ignore[operator]


def sizes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(p.shape) for p in module.parameters() if p.ndim == 2]


@pytest.mark.parametrize(
    ("make", "settings", "expected"),
    [
        (Fixed, {}, [(3, 6)]),
        (Classes, {}, [(3, 6)]),  # three classes, not the default ten
        (Classes, {"num_classes": 5}, [(5, 6)]),
        (Channels, {"width": 4}, [(4, 6), (3, 4)]),
        (nn.Linear, {}, [(3, 6)]),
        (nn.Linear, {"bias": False}, [(3, 6)]),
        (by_position, {}, [(2, 6), (3, 2)]),
        (by_position, {"width": 5}, [(5, 6), (3, 5)]),
        (variadic, {}, [(3, 6)]),
        (lambda: nn.Linear(6, 3), {}, [(3, 6)]),
        (lambda input_shape, out_features: nn.Linear(*input_shape, out_features), {}, [(3, 6)]),
    ],
)
def test_ways_to_make_one(make: Any, settings: dict[str, Any], expected: list[tuple[int, ...]]) -> None:
    assert sizes(call_model(make, (6,), 3, settings)) == expected


def test_in_features_is_the_number_of_values() -> None:
    assert sizes(call_model(nn.Linear, (2, 4, 5), 3, {})) == [(3, 40)]


@pytest.mark.parametrize("given", [Fixed, Fixed(), "tests.models.test_call:Classes", {"name": Channels, "width": 3}])
def test_each_runs(experiment: Load, given: Any) -> None:
    assert len(list(dragfl.simulate(experiment(model=given)))) == 3


def test_settings_of_a_model_given_by_its_name_alone(experiment: Load) -> None:
    spec = experiment("model.width=5", model="tests.models.test_call:Channels")
    assert spec.tables()["model"]["width"] == 5


def test_the_error_says_what_was_tried() -> None:
    with pytest.raises(SpecError) as error:
        call_model(Channels, (6,), 3, {"wdith": 4})
    tried = "Channels(in_channels=6, n_classes=3, wdith=4): got an unexpected keyword argument 'wdith'"
    assert tried in str(error.value) and "Channels((6,), 3, wdith=4)" in str(error.value)
    with pytest.raises(SpecError, match=r"three\(\): missing a required .*'a'.*three\(\(6,\), 3\): missing .*'c'"):
        call_model(three, (6,), 3, {})


def three(a: int, b: int, c: int) -> nn.Module:
    return nn.Linear(a, b + c)


def test_a_type_error_in_the_body_is_no_wrong_signature(experiment: Load) -> None:
    message = r"model: tests\.models\.test_call:broken raised TypeError: can only concatenate .* \(test_call\.py:\d+\)"
    with pytest.raises(PartError, match=message) as error:
        dragfl.simulate(experiment(model={"name": broken}))
    assert isinstance(error.value.__cause__, TypeError)


INSTANCE = """
from torch import nn

net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
net[1].weight.data.zero_()
"""


def test_an_instance_by_name_keeps_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_net_x.py").write_text(INSTANCE)
    spec = dragfl.load({"rounds": 2, "model": "own_net_x:net", "clients": {"total": 4, "local_steps": 1}})
    assert spec.tables()["model"]["name"] == "own_net_x:net"
    assert not dragfl.simulate(spec).state.w[:640].any()
    assert dragfl.load(spec.tables()).model == spec.model
