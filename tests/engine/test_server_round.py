"""The server's half of a round: sampling, results by client id, rounds that are skipped, and divergence."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from safetensors.torch import load_file

import dragfl
from dragfl.aggregates import Mean
from dragfl.algorithms import PRESETS
from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.client import ClientResults, TrainTask, concat
from dragfl.engine.round import TrainTasks
from dragfl.engine.server_round import ServerRound, sample_clients
from dragfl.engine.threads import one_thread, own_generator
from dragfl.errors import Diverged
from dragfl.rng import rng
from dragfl.types import Plan, RoundContext, State, Updates
from tests.conftest import Load
from tests.engine.custom_attacks import ConstantAttack, GrowingAttack

SOME = {"per_round": 3}
T = TypeVar("T")


def cohorts(experiment: dragfl.Experiment) -> list[list[int]]:
    return [record.clients["client"] for record in dragfl.simulate(experiment)]


def test_clients_are_sampled_uniformly_without_replacement(experiment: Load) -> None:
    """300 rounds of 3 of 6: each client 150 times, standard deviation sqrt(300/4) = 8.7."""
    fed = dragfl.simulate(experiment(clients=SOME)).federation
    drawn = [sample_clients(fed, RoundContext(t, 0.1, 3)) for t in range(300)]
    assert all(len(set(c)) == 3 and list(c) == sorted(c) for c in drawn)
    times = Counter(m for c in drawn for m in c)
    assert all(abs(times[m] - 150) < 4 * 8.7 for m in range(6))
    assert drawn[0] != drawn[1] or drawn[1] != drawn[2]


def test_a_cohort_does_not_depend_on_earlier_rounds(experiment: Load) -> None:
    simulation = dragfl.simulate(experiment(rounds=6, clients=SOME))
    simulated = [record.clients["client"] for record in simulation]
    sampled = [list(sample_clients(simulation.federation, RoundContext(t, 0.1, 3))) for t in reversed(range(6))]
    assert simulated == sampled[::-1]
    assert cohorts(experiment(rounds=6, clients=SOME, algorithm={"name": "drag"})) == simulated
    assert cohorts(experiment("seed=4", rounds=6, clients=SOME)) != simulated


def test_sampling_from_a_million_clients_takes_little_memory() -> None:
    tables = {"clients": {"total": 1_000_000, "per_round": 10}, "data": {"partition": {"kind": "resampled", "k": 20}}}
    fed = dragfl.simulate(dragfl.load({**tables, "model": {"name": "logistic"}})).federation
    tracemalloc.start()
    cohort = sample_clients(fed, RoundContext(0, 0.1, 3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(cohort)) == 10 and max(cohort) > 1000
    assert peak < 100_000, "a permutation would take 8 MB"


def opened(experiment: Load, **changes: Any) -> tuple[ServerRound, list[Any]]:
    """A round of six clients with blocks of one, and its folded blocks."""
    fed = dragfl.simulate(experiment(**{"engine": {"block": 1}, **changes})).federation
    with one_thread(), own_generator():
        server = ServerRound.open(fed, fed.start())
        plan = server.begin()
        blocks = [fold(fed.algorithm.aggregate, plan, result) for result in fed.backend.train(TrainTasks(server))]
    return server, blocks


def test_results_in_another_order_give_the_same_rows(experiment: Load) -> None:
    server, blocks = opened(experiment)
    for block in blocks:
        assert server.take(block)
    state, record = server.close(None)
    reverse, blocks = opened(experiment)
    for block in reversed(blocks):
        assert reverse.take(block)
    other, same = reverse.close(None)
    assert record.clients == same.clients
    torch.testing.assert_close(state.w, other.w, rtol=0, atol=1e-7)


def test_a_missing_result_leaves_the_other_rows_as_they_are(experiment: Load) -> None:
    server, blocks = opened(experiment)
    for block in blocks:
        server.take(block)
    _, whole = server.close(None)
    partial, blocks = opened(experiment)
    for block in blocks[:2] + blocks[3:]:
        partial.take(block)
    _, record = partial.close(None)
    assert record.metrics["missing"] == 1 and record.metrics["used"] == 5
    assert record.clients["client"] == [0, 1, 2, 3, 4, 5]
    assert record.clients["dropped"] == [m == 2 for m in range(6)]
    for name, column in whole.clients.items():
        if name != "dropped":
            assert [v for m, v in enumerate(record.clients[name]) if m != 2] == [
                v for m, v in enumerate(column) if m != 2
            ]


@pytest.mark.parametrize("clients", [(0,), (99,), (3, 3)])
def test_a_doubled_or_unknown_result_is_ignored(experiment: Load, clients: tuple[int, ...]) -> None:
    server, blocks = opened(experiment)
    for block in blocks:
        server.take(block)
    again = replace(blocks[0], clients=clients)
    assert not server.take(again)
    state, record = server.close(None)
    once, blocks = opened(experiment)
    for block in blocks:
        once.take(block)
    expected, same = once.close(None)
    assert torch.equal(state.w, expected.w) and record == same


NAN, INF = float("nan"), float("inf")
RULES: list[dict[str, Any]] = [
    {"algorithm": {"name": "fedavg"}},
    {"algorithm": {"name": "drag"}},
    {"algorithm": {"name": "br_drag"}, "root": {"size": 20}},
    {"algorithm": {"name": "fltrust"}, "root": {"size": 20}},
]


@pytest.mark.parametrize("changes", RULES, ids=lambda c: c["algorithm"]["name"])
@pytest.mark.parametrize("block", [2, 20])
def test_a_round_without_a_usable_update_changes_nothing(experiment: Load, changes: dict[str, Any], block: int) -> None:
    attack = {"name": ConstantAttack(NAN), "attackers": 6}
    simulation = dragfl.simulate(experiment(**changes, attack=attack, engine={"block": block}))
    before = simulation.state
    record = simulation.step()
    assert torch.equal(simulation.state.w, before.w)
    assert simulation.state.aggregate == before.aggregate
    assert simulation.state.t == 1
    assert record.metrics["skipped"] == "no usable update"
    assert record.metrics["dropped_nonfinite"] == 6
    assert record.accuracy is not None
    json.dumps([record.metrics, record.clients], allow_nan=False)


class TestDiverged:
    def test_the_error_has_the_round_and_advice(self, experiment: Load, tmp_path: Path) -> None:
        attack = {"name": ConstantAttack(1e15), "attackers": 1}
        with pytest.raises(Diverged, match=r"diverged in round 1: the model has norm .*lower clients.lr") as error:
            dragfl.run(experiment(attack=attack), tmp_path / "r")
        run = dragfl.load_run(tmp_path / "r")
        assert run.finished
        assert run.result is not None
        assert run.result["stopped_by"] == "diverged"
        assert run.result["message"] == str(error.value)
        assert run.result["rounds"] == 0

    def test_the_last_checkpoint_is_from_before_the_divergence(self, experiment: Load, tmp_path: Path) -> None:
        """Attackers multiply their update by ten every round until the model diverges."""
        with pytest.raises(Diverged, match=r"diverged in round (\d+)") as error:
            dragfl.run(
                experiment(rounds=60, attack={"name": GrowingAttack(), "attackers": 2}, checkpoint={"every": 1}),
                tmp_path / "r",
            )
        diverged = int(str(error.value).split("round ")[1].split(":")[0])
        assert diverged > 2
        table = json.loads((tmp_path / "r" / "checkpoint.json").read_text())
        assert table["round"] == diverged - 1
        assert torch.isfinite(load_file(tmp_path / "r" / table["tensors"])["w"]).all()
        run = dragfl.load_run(tmp_path / "r")
        assert len(run.metrics) == diverged - 1
        with pytest.raises(Diverged, match="there is no final model, the run diverged in round"):
            run.model()

    def test_resume_returns_the_same_result(self, experiment: Load, tmp_path: Path) -> None:
        spec = experiment(attack={"name": ConstantAttack(1e15), "attackers": 1})
        with pytest.raises(Diverged):
            dragfl.run(spec, tmp_path / "r")
        assert dragfl.resume(tmp_path / "r", spec).result == dragfl.load_run(tmp_path / "r").result


@dataclass(frozen=True)
class HugeStep:
    """A step whose square overflows float32 in one coordinate."""

    inner: Mean = field(default_factory=Mean)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def finish(self, state: State, plan: Any, partial: Any) -> tuple[torch.Tensor, State, dict[str, float]]:
        step = torch.zeros_like(partial.mean)
        step[0] = 1e20
        return step, state, {}


def test_a_server_state_that_overflows_is_a_divergence(experiment: Load) -> None:
    """FedAdam's v would be infinite while the model stays finite: that coordinate would never move again."""
    with pytest.raises(Diverged, match="v of the server is not finite"):
        list(dragfl.simulate(experiment(algorithm={"aggregate": HugeStep(), "server": {"name": "adam"}})))


def test_a_round_with_too_few_usable_results_leaves_the_model_as_it_is(experiment: Load) -> None:
    """Six replies of six are required and clients are away in each of these two rounds: the model does not move."""
    tables = {"clients": {"availability": 0.5}, "flower": {"min_replies": 6}}
    simulation = dragfl.simulate(experiment(rounds=2, algorithm={"name": "scaffold"}, **tables))
    before = simulation.state.w.clone()
    records = list(simulation)
    assert all(0 < r.metrics["used"] < 6 for r in records)
    assert [r.metrics["skipped"] for r in records] == [
        f"{r.metrics['used']} usable replies, 6 required" for r in records
    ]
    assert torch.equal(simulation.state.w, before)
    assert not any(simulation.federation.store.read(m)["c"].any() for m in range(6))


def test_a_given_cohort_replaces_sampling(experiment: Load) -> None:
    simulation = dragfl.simulate(experiment(clients=SOME))
    server = ServerRound.open(simulation.federation, simulation.state, (1, 5))
    assert server.present == (1, 5) and server.log.cohort == (1, 5)


def test_the_record_says_why_clients_have_no_result(experiment: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = dragfl.simulate(experiment())
    assert "reason" not in simulation.step().clients
    monkeypatch.setattr(simulation.federation.backend, "missing", lambda: {2: "no reply"})
    assert simulation.step().clients["reason"] == [None, None, "no reply", None, None, None]


class Scattered(LocalBackend):
    """Trains clients one at a time, in any order, and puts their results into the blocks of the round."""

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        tasks = list(tasks)
        return self._in_blocks(tasks, self._worker.train, concat)

    def fold(self, tasks: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        return (fold(self._worker.aggregate, plan, results) for results in self.train(tasks))

    def gradients(self, tasks: Iterable[TrainTask]) -> Iterator[Updates]:
        return self._in_blocks(list(tasks), self._worker.gradients, Updates.concat)

    def _in_blocks(self, tasks: list[TrainTask], work: Callable[[TrainTask], T], join: Callable[[list[T]], T]) -> Any:
        alone = {
            m: replace(task, clients=(m,), states=(state,), attackers=task.attackers & {m})
            for task in tasks
            for m, state in zip(task.clients, task.states, strict=True)
        }
        order = rng(0, "order", tasks[0].context.t).permutation(list(alone)).tolist()
        results = {m: work(alone[m]) for m in order}
        return (join([results[m] for m in task.clients]) for task in tasks)


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_results_in_any_order_put_into_blocks_have_the_bits_of_the_simulator(
    experiment: Load, name: str, block: int
) -> None:
    """What arrives first does not matter, as long as blocks are folded in order, with their clients in order."""
    tables = {"algorithm": {"name": name}, "root": {"size": 20}, "engine": {"block": block}, "clients": {"lr": 0.05}}
    expected, simulation = (dragfl.simulate(experiment(**tables)) for _ in range(2))
    federation = simulation.federation
    simulation.federation = replace(federation, backend=Scattered(federation.worker))
    assert [r.metrics for r in simulation] == [r.metrics for r in expected]
    assert torch.equal(simulation.state.w, expected.state.w)


@pytest.mark.parametrize("name", ["fedavg", "drag", "median", "scaffold", "mime", "krum"])
@pytest.mark.parametrize("attack", [None, {"name": "alie", "attackers": 2}, {"name": "sign_flip", "attackers": 2}])
def test_a_round_in_which_no_client_replies_is_skipped(
    experiment: Load, name: str, attack: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "mime" and attack is not None:
        return
    simulation = dragfl.simulate(experiment(algorithm={"name": name}, attack=attack))
    backend, before = simulation.federation.backend, simulation.state.w.clone()
    for method in ("train", "fold", "gradients"):
        monkeypatch.setattr(backend, method, lambda *_, **__: iter(()))
    assert simulation.step().metrics["skipped"] == "no usable update"
    assert torch.equal(simulation.state.w, before)
