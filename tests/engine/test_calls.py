"""What a user's own part returns is checked where it returns, and an exception in it has its name and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dragfl
from dragfl import functional
from dragfl.aggregates.mean import Mean
from dragfl.aggregates.robust import Median
from dragfl.cli import main
from dragfl.corrections.none import no_needs, nothing_sent, step_unchanged
from dragfl.engine import calls
from dragfl.errors import Diverged, PartError, SpecError
from dragfl.types import Affine, FederationInfo, NoState, Partial, RoundContext, RoundInputs, Updates, no_state
from tests.conftest import Load

Answer = Callable[..., Any]


def scripted(kind: type, method: str, answer: Answer) -> Any:
    """An object of a user's class that answers one method in its own way."""
    return dataclass(frozen=True)(type("Mine", (kind,), {method: answer, "__module__": __name__}))()


@dataclass(frozen=True)
class Plain:
    """A correction that does nothing."""

    fields: ClassVar[Mapping[str, Any]] = {"c": "vector"}
    sends: ClassVar[Mapping[str, Any]] = {"e": "scalar"}
    init, needs, broadcast, server_finish = no_state, no_needs, nothing_sent, step_unchanged

    def affine(self, mine: Any, sent: Any, context: RoundContext) -> Affine:
        return Affine()

    def client_finish(self, result: Any, mine: Any, sent: Any, context: RoundContext) -> Any:
        return {"e": torch.tensor(1.0)}, {"c": result.delta.clone()}


@dataclass(frozen=True)
class Step:
    init = no_state

    def update(self, state: Any, step: Tensor, w: Tensor, context: RoundContext) -> Any:
        return w + step, state


@dataclass(frozen=True)
class Silence:
    knowledge: ClassVar[str] = "own"
    init = no_state

    def craft(self, state: Any, view: Any, context: RoundContext) -> Any:
        return replace(view.own, delta=torch.zeros_like(view.own.delta)), state

    def poison(self, x: Tensor, y: Tensor, predict: Any, rng: np.random.Generator) -> Any:
        return x, y


def partial_with(**changes: Any) -> Answer:
    return lambda self, plan, block: replace(Partial.of(block, {"sum": block.delta.sum(0)}, {}), **changes)


def finish_with(step: Any = None, state: Any = None, metrics: Any = None) -> Answer:
    def finish(self: Any, _: Any, plan: Any, partial: Partial) -> Any:
        return (
            partial.mean if step is None else step(partial.mean),
            state or NoState(),
            {} if metrics is None else metrics,
        )

    return finish


@dataclass(frozen=True)
class Listed:
    rows: list[int]


ONE = torch.tensor(1.0)
AGGREGATE = [
    ("init", lambda self, info: {}, "init: the state is a dict; make it a frozen dataclass"),
    ("init", lambda self, info: Listed([1]), "init: rows of the state is a list; use a tensor or a number"),
    ("begin", lambda self, *_: 1 / 0, r"begin raised ZeroDivisionError: .*test_calls\.py:\d+"),
    ("fold", lambda self, plan, block: block.delta.sum(0), "fold returned a Tensor; return Partial.of"),
    ("fold", partial_with(count=1), "fold: count is 1 for 3 updates"),
    ("fold", partial_with(total=ONE), r"fold: total is torch\.float32 of shape \(\).*of shape \(21,\)"),
    ("fold", partial_with(sums={"sum": 3.0}), "fold: the sum 'sum' is a float; return a tensor"),
    ("fold", partial_with(per_client={"norm": torch.ones(5)}), r"per_client\['norm'\] is .*\(5,\); .*\(3,\)"),
    ("fold", partial_with(extra={}), r"fold: extra has no \['steps'\]"),
    ("finish", lambda self, *_: ONE, r"finish returned a Tensor; return \(step, state, metrics\)"),
    ("finish", lambda self, *_: (ONE, NoState()), r"finish returned a tuple of 2; return \(step, state, metrics\)"),
    ("finish", finish_with(lambda mean: mean.numpy()), "finish: the step is a ndarray; return a tensor"),
    ("finish", finish_with(lambda mean: mean.double()), r"the step is torch\.float64 .*return torch\.float32"),
    ("finish", finish_with(lambda mean: mean[:3]), r"the step is .*\(3,\); return .*\(21,\)"),
    ("finish", finish_with(lambda mean: mean / 0), "the step is not finite: 21 of 21 numbers"),
    ("finish", finish_with(state=(1, 2)), "finish: the state is a tuple of 2"),
    ("finish", finish_with(metrics=[1.0]), "finish: the metrics are a list"),
    ("finish", finish_with(metrics={"a": "b"}), "finish: the metric 'a' is a str; return a number"),
]
CORRECTION = [
    ("broadcast", lambda self, *_: [ONE], "broadcast: a list; return a dictionary of names and tensors"),
    ("broadcast", lambda self, *_: {"c": 1.0}, "broadcast: 'c' is a float; return a tensor"),
    ("broadcast", lambda self, *_: {"c": ONE / 0}, "broadcast: 'c' is not finite: 1 of 1"),
    ("affine", lambda self, *_: None, "affine returned a NoneType; return an Affine"),
    ("affine", lambda self, *_: Affine(prox=float("nan")), "affine: prox is nan; give a finite number"),
    ("affine", lambda self, *_: Affine(shift=ONE), r"affine: shift is .*\(\); return .*\(21,\)"),
    ("client_finish", lambda self, *_: {}, r"client_finish returned a dict; return \(extras, client state\)"),
    ("client_finish", lambda self, *_: ({"e": 1.0}, {}), "extras: 'e' is a float"),
    ("client_finish", lambda self, *_: ({"e": ONE / 0}, {}), "extras: 'e' is not finite"),
    ("client_finish", lambda self, r, *_: ({"e": ONE}, {"c": r.delta / 0}), "client state: 'c' is not finite"),
    ("client_finish", lambda self, r, *_: ({"e": ONE}, {"c": ONE}), r"'c' is torch.float32 of shape \(\); it is decl"),
    ("client_finish", lambda self, r, *_: ({"f": ONE}, {"c": r.delta}), r"has fields \['f'\], but it declares \['e'\]"),
    ("server_finish", lambda self, *_: None, r"server_finish returned a NoneType; return \(step, state\)"),
    ("server_finish", lambda self, s, a, step, *_: (step * np.inf, s), "server_finish: the step is not finite"),
]
SERVER = [
    ("update", lambda self, state, step, w, context: w, r"update returned a Tensor; return \(model, state\)"),
    ("update", lambda self, state, step, w, context: (w[1:], state), r"update: the model is .*\(20,\)"),
    ("update", lambda self, state, step, w, context: (w * np.nan, state), "update: the model is not finite"),
    ("update", lambda self, state, step, w, context: w.foo, r"update raised AttributeError: .*test_calls\.py:\d+"),
]
ATTACK = [
    ("craft", lambda self, state, view, context: view.own, r"craft returned a Updates; return \(updates, state\)"),
    ("craft", lambda self, state, view, context: (view.own.delta, state), "craft returned a Tensor; return replace"),
    (
        "craft",
        lambda self, state, view, context: (replace(view.own, delta=view.own.delta.double()), state),
        r"craft: delta is torch\.float64",
    ),
    ("success_rate", lambda self, x, y, predict: None, "success_rate returned None; return a finite number"),
    ("success_rate", lambda self, x, y, predict: y / "a", r"success_rate raised TypeError: .*test_calls\.py:\d+"),
    ("poison", lambda self, x, y, predict, rng: x, r"poison returned a Tensor; return \(x, y\)"),
    ("poison", lambda self, x, y, predict, rng: (x, y + 3), "poison: y has 24 labels; .* all in .0, 3"),
    ("poison", lambda self, x, y, predict, rng: (x, y.float()), r"poison: y is torch\.float32"),
    ("poison", lambda self, x, y, predict, rng: (x[:, :2], y), r"poison: x is .*\(24, 2\); .*\(24, 6\)"),
    ("poison", lambda self, x, y, predict, rng: (x / 0, y), "poison: x is not finite"),
]


@pytest.mark.parametrize(
    ("table", "kind", "method", "answer", "message"),
    [
        *(("aggregate", Mean, *case) for case in AGGREGATE),
        *(("correction", Plain, *case) for case in CORRECTION),
        *(("server", Step, *case) for case in SERVER),
        *(("attack", Silence, *case) for case in ATTACK),
    ],
)
def test_wrong_answers(experiment: Load, table: str, kind: type, method: str, answer: Answer, message: str) -> None:
    mine = scripted(kind, method, answer)
    change = {"attack": {"name": mine, "attackers": 2}} if table == "attack" else {"algorithm": {table: mine}}
    with pytest.raises(
        (PartError, SpecError), match=rf"{__name__}:Mine.*{message}".replace(".Mine", ".*Mine")
    ) as error:
        dragfl.simulate(experiment(**change)).step()
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda self, state: state.r, r"reference raised AttributeError: .*test_calls\.py:\d+"),
        (lambda self, state: ONE, r"reference: the direction is .*\(\); return .*\(21,\)"),
    ],
)
def test_the_reference_for_white_box_attackers(experiment: Load, answer: Answer, message: str) -> None:
    mine = scripted(Mean, "reference", answer)
    attack = {"name": "adaptive_br_drag", "attackers": 2}
    with pytest.raises(PartError, match=f"Mine.{message}"):
        dragfl.simulate(experiment(algorithm={"aggregate": mine}, attack=attack)).step()


def test_the_line_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of the package, not that of torch, in which the exception was raised."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_x.py").write_text("import torch\n\n\ndef rule(updates):\n    return torch.ones(2) @ updates\n")
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(PartError, match=r"installed_x:rule raised RuntimeError: .* \(installed_x\.py:5\); fix"):
        functional.aggregate("installed_x:rule", torch.ones(4, 3))


def test_right_answers_are_unchanged(experiment: Load) -> None:
    """Own parts with the same answers as the built-in ones give the same bits."""
    parts = {"aggregate": scripted(Mean, "x", len), "server": scripted(Step, "x", len), "correction": Plain()}
    mine, plain = dragfl.simulate(experiment(algorithm=parts)), dragfl.simulate(experiment())
    list(mine), list(plain)
    assert torch.equal(mine.state.w, plain.state.w)


def test_a_built_in_rule_that_diverges_is_reported_as_before(experiment: Load) -> None:
    with pytest.raises(Diverged, match=r"lower clients\.lr"):
        list(dragfl.simulate(experiment(clients={"lr": 1e6}, algorithm={"server": {"name": "sgd", "lr": 1e6}})))


class Forgetful(nn.Module):
    """Its forward pass fails in training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise KeyError("memory")
        out: Tensor = self.linear(x)
        return out


def test_a_model_that_fails_in_training(experiment: Load) -> None:
    with pytest.raises(PartError, match=r"model: .*:Forgetful raised KeyError: 'memory' \(test_calls\.py:\d+\)"):
        dragfl.simulate(experiment(model=Forgetful)).step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.LSTM(3, 3)), "its output is a tuple; it must be a float tensor"),
        (lambda: nn.Linear(6, 2), r"its output has shape \(2, 2\) for 2 samples; it must have 3 scores"),
    ],
)
def test_outputs_of_models(experiment: Load, make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        dragfl.simulate(experiment(model=make))


def test_a_model_whose_first_output_is_not_finite(experiment: Load) -> None:
    module = nn.Linear(6, 3)
    module.weight.data.fill_(float("nan"))
    with pytest.raises(SpecError, match="holds a NaN or an infinity; check its initial weights"):
        dragfl.simulate(experiment(model=module))


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (lambda labels, clients, rng: None, "returned a NoneType; return Split.from_parts"),
        (lambda labels, clients, rng: [np.arange(3)], "made 1 clients and clients.total is 6"),
        (lambda labels, clients, rng: [np.arange(3)] * 5 + [np.empty(0, int)], r"client 5 has .*shape \(0,\)"),
        (lambda labels, clients, rng: [np.arange(142, 145)] * 6, r"client 0 has the samples 142 to 144; .*\[0, 144\)"),
        (lambda labels, clients, rng: [[0.5]] * 6, r"client 0 has float64 of shape \(1,\); give the indices"),
        (lambda labels, clients: None, r"raised TypeError: .*3 were given; check the parameters it takes"),
        (lambda labels, clients, rng: labels["x"], r"raised IndexError: .*test_calls\.py:\d+"),
    ],
)
def test_partitions(experiment: Load, partition: Any, message: str) -> None:
    with pytest.raises(PartError, match=message):
        dragfl.simulate(experiment(data={"partition": partition}))


def test_a_partition_may_return_a_list_of_indices(experiment: Load) -> None:
    simulation = dragfl.simulate(experiment(data={"partition": lambda y, n, rng: np.array_split(np.arange(len(y)), n)}))
    assert simulation.federation.worker.split.sizes.tolist() == [24] * 6


@pytest.mark.parametrize(
    ("table", "kind", "name", "value", "message"),
    [
        ("attack", Silence, "knowledge", "everything", "knowledge of .*:Mine has 'everything'; choose among 'own', 'c"),
        ("attack", Silence, "knowledge", "whitebox", "did you mean 'white_box'"),
        (
            "aggregate",
            Mean,
            "needs",
            lambda self, state: {"al"},
            r"needs\(\) of .*:Mine has 'al'; .*mean 'all'",
        ),
        ("correction", Plain, "needs", lambda self, state: {"mean"}, "has 'mean'; choose among 'gradient'"),
        ("aggregate", Mean, "own_iterate", "client averages", "did you mean 'client average'"),
    ],
)
def test_unknown_words_are_refused_at_load(
    experiment: Load, table: str, kind: type, name: str, value: Any, message: str
) -> None:
    mine = scripted(kind, name, value)
    change = {"attack": {"name": mine, "attackers": 2}} if table == "attack" else {"algorithm": {table: mine}}
    with pytest.raises(SpecError, match=message):
        experiment(**change)


def test_from_the_command_line(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fails_x.py").write_text("def rule(updates):\n    rows = updates.sort(0)\n    return rows[7]\n")
    (tmp_path / "x.toml").write_text('rounds = 1\n[model]\nname = "logistic"\n[algorithm]\nname = "fails_x:rule"\n')
    assert main(["run", "x.toml", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "algorithm.aggregate: fails_x:rule raised IndexError: " in error and "(fails_x.py:3)" in error
    assert "Traceback of your code" in error and "dragfl/engine" not in error


@pytest.mark.parametrize("rule", [Mean(), Median()])
def test_built_in_parts_are_called_as_they_are(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a built-in part's answer is read: a counted check would cost a pass over d numbers."""

    def refuse(*_: Any) -> None:
        raise AssertionError("checked")

    monkeypatch.setattr(calls, "_vector", refuse)
    monkeypatch.setattr(calls, "_state", refuse)
    monkeypatch.setattr(calls, "named_errors", refuse)
    info = FederationInfo(dim=3, clients=4, per_round=4, segments=(0, 3))
    state = calls.init(rule, info)
    block = Updates(torch.ones(4, 3), torch.ones(4).double(), torch.arange(4))
    plan = calls.begin(rule, state, RoundContext(0, 0.1, 0), RoundInputs(), info)
    step, *_ = calls.finish(rule, state, plan, calls.fold(rule, plan, block))
    assert step.tolist() == [1.0, 1.0, 1.0]
