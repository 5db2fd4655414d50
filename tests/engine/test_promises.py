"""What a round promises whatever is plugged into it: addressed draws, guarded sums, views that change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dragfl
from dragfl.aggregates import Mean
from dragfl.algorithms import PARTS, chain
from dragfl.errors import Diverged, Interrupted, SpecError
from dragfl.types import FederationInfo, Knowledge, NoState, RoundContext, RoundInputs, State, Updates, View

SMALL: dict[str, Any] = {"rounds": 3, "clients": {"total": 6}, "model": {"name": "logistic"}}


@dataclass(frozen=True)
class Liar:
    """Does one thing that no client may do."""

    lie: str
    knowledge: Knowledge = "own"

    def init(self, info: FederationInfo) -> State:
        return NoState()

    def craft(self, state: State, view: View, context: RoundContext) -> tuple[Updates, State]:
        own = view.own
        if self.lie == "weight":
            return replace(own, weight=torch.full_like(own.weight, float("nan"))), state
        if self.lie == "negative":
            return replace(own, weight=torch.full_like(own.weight, -1e9)), state
        for vector in (view.w, view.reference):
            if vector is not None:
                vector.mul_(-1.0)
        return own, state


def end(tables: dict[str, Any]) -> tuple[torch.Tensor, Any]:
    """The model at the end, and the record of the last round."""
    simulation = dragfl.simulate(dragfl.load(tables))
    records = list(simulation)
    return simulation.state.w, records[-1]


def test_a_model_that_draws_does_so_by_address_in_the_gradient_exchange_too() -> None:
    """Drop-out under Mime: torch's own generator, wherever it stands, changes nothing."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 10))
    ends = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        ends.append(end({**SMALL, "model": {"name": net}, "algorithm": {"name": "mime"}})[0])
    assert torch.equal(*ends)


def test_poisoned_clients_exchange_gradients_of_poisoned_data() -> None:
    mime = {**SMALL, "rounds": 1, "algorithm": {"name": "mime", "momentum": 0.0}}
    clean, _ = end(mime)
    spoilt, _ = end({**mime, "attack": {"name": "label_flip", "attackers": 6}})
    assert not torch.allclose(clean, spoilt, atol=1e-4)


@pytest.mark.parametrize("lie", ["weight", "negative"])
def test_a_weight_that_cannot_be_used_drops_its_client(lie: str) -> None:
    tables = {**SMALL, "algorithm": {"name": "fedavg", "weighting": "samples"}}
    _, record = end({**tables, "attack": {"name": Liar(lie), "attackers": 2}})
    assert (record.metrics["used"], record.metrics["dropped_nonfinite"]) == (4, 2)


@pytest.mark.parametrize("knowledge", ["own", "colluding", "white_box"])
def test_writing_into_the_view_changes_nothing(knowledge: Knowledge) -> None:
    tables = {**SMALL, "root": {"size": 50}, "algorithm": {"name": "br_drag"}}
    honest, _ = end(tables)
    tampered, _ = end({**tables, "attack": {"name": Liar("tamper", knowledge), "attackers": 2}})
    assert torch.equal(honest, tampered)


@dataclass(frozen=True)
class Huge:
    """A step whose square no float32 holds, in one coordinate."""

    inner: Mean = field(default_factory=Mean)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def finish(self, state: State, plan: Any, partial: Any) -> tuple[torch.Tensor, State, dict[str, float]]:
        step = torch.zeros_like(partial.mean)
        step[0] = 1e20
        return step, state, {}


def test_a_server_state_that_overflows_is_a_divergence() -> None:
    """FedAdam's v would be infinite while the model stays finite: that coordinate would never move again."""
    with pytest.raises(Diverged, match="v of the server is not finite"):
        end({**SMALL, "algorithm": {"aggregate": Huge(), "server": {"name": "adam"}}})


def test_simulate_stops_at_the_target() -> None:
    tables = {**SMALL, "target_accuracy": 0.01, "stop_at_target": True, "evaluation": {"every": 1}}
    assert len(list(dragfl.simulate(dragfl.load(tables)))) == 1


def test_resume_keeps_the_block_and_trainer_of_the_first_start(tmp_path: Path) -> None:
    """They order the sums: an experiment that leaves them open takes them from the run directory."""
    fixed = dragfl.load({**SMALL, "engine": {"block": 2, "trainer": "reference"}})
    whole = dragfl.run(fixed, tmp_path / "whole")
    with pytest.raises(Interrupted):
        dragfl.run(fixed, tmp_path / "cut", should_stop=lambda: True)
    cut = dragfl.resume(tmp_path / "cut", dragfl.load(SMALL))
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()


def updates(rows: list[list[float]]) -> Updates:
    delta = torch.tensor(rows)
    return Updates(delta, torch.ones(len(rows), dtype=torch.float64), torch.arange(len(rows)))


def test_a_chain_gives_its_last_rule_the_mean_of_the_rows_it_made() -> None:
    """Four updates near (1, 0) and one of (-1000, 0). After NNM with f = 1 the four are the mean of themselves and the
    fifth a mean of itself and three of them; DRAG's first reference is the mean of those rows. Median-of-means or not,
    what counts is that it is not (-199, 0), the mean of what was sent, times anything.
    """
    rule = chain("nnm", "drag", f=1)
    info = FederationInfo(2, 5, 5, (0, 2))
    sent = updates([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [-1000.0, 0.0]])
    state = rule.init(info)
    assert "mean" not in rule.needs(state)
    plan = rule.begin(state, RoundContext(0, 0.1, 0), RoundInputs(), info)
    _, after, _ = rule.finish(state, plan, rule.fold(plan, sent))
    rows = dragfl.functional.nnm(sent.delta, f=1)
    step = dragfl.functional.drag(rows, rows.mean(0), c=0.25)
    torch.testing.assert_close(after.r, step, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "parts", [({"name": "bucketing", "size": 1}, "krum"), ({"name": "bucketing", "size": 1}, "nnm", "krum")]
)
def test_suspicion_goes_to_the_client_behind_a_shuffled_row(parts: tuple[Any, ...]) -> None:
    rule = chain(*parts, f=1)
    info = FederationInfo(2, 9, 9, (0, 2))
    sent = updates([[1.0, 0.01 * i] for i in range(9)])
    sent.delta[3] = torch.tensor([-500.0, 0.0])
    state = rule.init(info)
    plan = rule.begin(state, RoundContext(0, 0.1, 0), RoundInputs(), info)
    assert int(rule.fold(plan, sent).per_client["suspicion"].argmax()) == 3


@pytest.mark.parametrize(
    ("kind", "name", "word"),
    [
        ("aggregate", "mean", {"weighting": "sample"}),
        ("aggregate", "fednova", {"weighting": "sample"}),
        ("aggregate", "fltrust", {"on_no_trust": "rooot"}),
        ("correction", "scaffold", {"option": "1"}),
        ("correction", "mime", {"weighting": "sample"}),
        ("server", "adabest", {"report": "averag"}),
    ],
)
def test_a_misspelt_choice_is_told_in_python_too(kind: str, name: str, word: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="is unknown"):
        PARTS[kind][name](**word)
