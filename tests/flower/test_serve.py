"""The ServerApp: run directory, waiting for nodes, resume, target, divergence, signals, nodes with their own data."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

import dragfl
from dragfl.errors import DragflError, Interrupted, SpecError
from dragfl.flower import client_app, serve, server_app
from dragfl.flower.exchange import Exchange
from dragfl.flower.serve import progress_line, wait_for_nodes
from dragfl.runs.directory import load_run
from dragfl.runs.loop import run
from dragfl.types import RoundRecord
from tests.conftest import TIMEOUT_S, kept_bytes
from tests.flower.local_grid import LocalGrid

TOML = """
name = "small"
seed = 5
rounds = 6
[data]
dataset = "digits"
partition = { kind = "sorted_shards" }
[clients]
total = 4
per_round = 3
local_steps = 2
batch_size = 10
[algorithm]
name = "scaffold"
[model]
name = "logistic"
[evaluation]
every = 1
[checkpoint]
every = 2
[flower]
deadline = 20.0
wait = 60.0
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(TOML)
    return path


class Site:
    """Four named nodes and a server on one grid; each start of the server is a new process in effect."""

    def __init__(self, spec: Path, *overrides: str, nodes: int = 4, **node_config: Any) -> None:
        self.spec, self.folder = spec, spec.parent / "run"
        self.config = {"run-dir": str(self.folder), "overrides": " ".join(overrides)}
        names = [f"node{m}" for m in range(nodes)]
        configs = [{"partition-id": m, "state-dir": str(spec.parent / name)} for m, name in enumerate(names)]
        if node_config:
            configs = [{**config, **{k: v(m) for k, v in node_config.items()}} for m, config in enumerate(configs)]
        keys = [name.encode() for name in names]
        self.grid = Failing(client_app(spec), configs, run_config=self.config, names=names, keys=keys)

    def serve(self) -> dragfl.Run:
        """In the grid's own time."""
        return serve.serve(self.spec, self.config, Exchange(self.grid, None, self.grid.time, self.grid.sleep))

    def start_app(self) -> None:
        """As Flower starts it."""
        server_app(self.spec)(self.grid, Context(1, 1, {}, RecordDict(), self.config))

    @property
    def trained(self) -> list[int]:
        """The round of each train message."""
        return [round for _, kind, round in self.grid.sent if kind == "train"]


class Failing(LocalGrid):
    """`before_push` may raise, with the round of the messages."""

    before_push: Callable[[int], None] = staticmethod(lambda round: None)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        self.before_push(int(sent[0].metadata.group_id))
        return super().push_messages(sent)


@pytest.fixture
def simulated(spec: Path, tmp_path: Path) -> dict[str, bytes]:
    """The files of the same run in the simulator."""
    run(spec, tmp_path / "simulated")
    return kept_bytes(tmp_path / "simulated")


def same_but_for_nodes(site: Site, simulated: dict[str, bytes]) -> bool:
    """Whether the run has the simulator's bytes; clients.jsonl has one column more."""
    found = kept_bytes(site.folder)
    assert b'"node":["node0",' in found["clients.jsonl"]
    return all(found[name] == simulated[name] for name in ("metrics.jsonl", "model.safetensors"))


def crash_in(round: int) -> Callable[[int], None]:
    def before_push(sent: int) -> None:
        if sent == round:
            raise RuntimeError("power failure")

    return before_push


def test_the_app_writes_the_run_directory_of_the_simulator(spec: Path, simulated: dict[str, bytes]) -> None:
    site = Site(spec)
    site.start_app()
    assert same_but_for_nodes(site, simulated)
    run = load_run(site.folder)
    assert run.result is not None and run.result["stopped_by"] == "rounds" and run.result["rounds"] == 6
    assert run.spec["engine"]["executor"] == "flower"
    assert {m: node["name"] for m, node in run.nodes.items()} == {m: f"node{m}" for m in range(4)}
    assert site.trained == [t for t in range(1, 7) for _ in range(3)]


@pytest.mark.parametrize("crashes", [(4,), (1, 2, 3, 6)], ids=str)
def test_a_run_continues_from_its_checkpoint_with_the_same_bytes_and_no_lost_state(
    spec: Path, simulated: dict[str, bytes], crashes: tuple[int, ...]
) -> None:
    """Checkpoints are after rounds 2, 4 and 6, so a crash in round 4 repeats round 3 at the clients too."""
    site = Site(spec)
    for round in crashes:
        site.grid.before_push = crash_in(round)
        with pytest.raises(RuntimeError, match="power failure"):
            site.serve()
    site.grid.before_push = lambda round: None
    site.serve()
    assert same_but_for_nodes(site, simulated)
    assert b"lost_states" not in (site.folder / "metrics.jsonl").read_bytes()
    greetings = [sent for sent in site.grid.sent if sent[1].startswith("query")]
    assert len(greetings) == 4, "the roster is kept"


def test_a_finished_run_is_returned_without_waiting_for_nodes(spec: Path) -> None:
    site = Site(spec, "rounds=1")
    first = site.serve()
    site.grid.offline, sent = {0, 1, 2, 3}, len(site.grid.sent)
    assert site.serve().result == first.result and len(site.grid.sent) == sent and site.grid.time() == 0.0


def test_a_folder_with_another_experiment_is_refused(spec: Path) -> None:
    Site(spec, "rounds=1").serve()
    other = Site(spec, "rounds=1", "clients.lr=0.2")
    other.grid.offline = {0, 1, 2, 3}
    with pytest.raises(SpecError, match=r"holds a run of another experiment: clients\.lr is 0\.2, there 0\.1"):
        other.serve()
    assert other.grid.time() == 0.0, "it is refused before the wait for nodes"


def test_a_robust_rule_without_f_is_a_warning(spec: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without an attack in the spec its f is 0, and it defends against nobody."""
    Site(spec, "rounds=1", "algorithm.name=trimmed_mean").serve()
    assert "trimmed_mean assumes no malicious client: f = 0; set algorithm.f" in caplog.text


@pytest.mark.parametrize("given", ["", "runs/a", 3, None])
def test_the_run_dir_must_be_an_absolute_path(spec: Path, given: Any) -> None:
    site = Site(spec)
    site.config["run-dir"] = given
    with pytest.raises(SpecError, match=r"run-dir: .* is no absolute path"):
        site.serve()


class TestWaiting:
    def test_the_log_says_who_is_there_at_most_every_ten_seconds(
        self, spec: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        site, sleep = Site(spec, "rounds=1"), LocalGrid.sleep
        site.grid.offline = {1, 2}

        def wake(seconds: float) -> None:
            sleep(site.grid, seconds)
            site.grid.offline = set() if site.grid.time() >= 25.0 else {1, 2}

        site.grid.sleep = wake  # type: ignore[method-assign]
        with caplog.at_level("INFO", "dragfl"):
            site.serve()
        lines = [r.message for r in caplog.records if r.message.startswith("waiting")]
        assert lines == ["waiting for nodes: 2 of 4 connected (node0, node3)"] * 3

    def test_too_few_nodes_are_an_error_with_advice(self, spec: Path) -> None:
        site = Site(spec)
        site.grid.offline = {0, 1, 2, 3}
        advice = r"nodes: 0 of 4 connected within 60 s; start the missing SuperNodes .*flower\.min_nodes"
        with pytest.raises(DragflError, match=advice):
            site.serve()
        assert not site.folder.exists()

    def test_fewer_nodes_than_clients_may_be_enough(self, spec: Path) -> None:
        site = Site(spec, "flower.min_nodes=2", "clients.per_round=4", "rounds=1")
        site.grid.offline = {0, 1}
        run = site.serve()
        assert run.clients[0]["reason"] == ["offline", "offline", None, None]
        assert run.clients[0]["node"] == [None, None, "node2", "node3"]

    def test_enough_nodes_need_no_wait(self, spec: Path) -> None:
        grid = Site(spec).grid
        wait_for_nodes(Exchange(grid, None, grid.time, grid.sleep), 4, 0.0)


class TestSignals:
    """A signal while the server waits for replies ends the round; its checkpoint is from the round before."""

    @pytest.fixture(autouse=True)
    def flower_ends_the_process(self) -> Iterator[list[int]]:
        """The handler that Flower has installed; here it only notes the signal."""
        caught: list[int] = []
        before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
        yield caught
        signal.signal(signal.SIGTERM, before)

    def test_the_run_stops_at_once_and_continues_with_the_same_bytes(
        self, spec: Path, simulated: dict[str, bytes], flower_ends_the_process: list[int]
    ) -> None:
        site = Site(spec, "checkpoint.every=100")
        site.grid.before_push = lambda round: os.kill(os.getpid(), signal.SIGTERM) if round == 4 else None
        with pytest.raises(Interrupted, match="stopped during a round"):
            site.start_app()
        assert flower_ends_the_process == [signal.SIGTERM]
        assert len(load_run(site.folder).metrics) == 3 and max(site.trained) == 3
        site.grid.before_push = lambda round: None
        site.start_app()
        assert same_but_for_nodes(site, simulated)

    def test_outside_a_wait_the_round_is_completed(
        self, spec: Path, flower_ends_the_process: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = Site(spec)

        def stop(record: RoundRecord, rounds: int) -> str:
            if record.round == 3:
                signal.raise_signal(signal.SIGTERM)
            return ""

        monkeypatch.setattr(serve, "progress_line", stop)
        with pytest.raises(Interrupted, match="stopped after round 3"):
            site.start_app()
        assert flower_ends_the_process == [signal.SIGTERM]
        assert len(load_run(site.folder).metrics) == 3

    def test_handlers_are_restored_and_a_thread_needs_none(self, spec: Path) -> None:
        before = signal.getsignal(signal.SIGTERM)
        site = Site(spec, "rounds=1")
        thread = threading.Thread(target=site.start_app)
        thread.start()
        thread.join(timeout=TIMEOUT_S)
        assert load_run(site.folder).finished
        Site(spec, "rounds=1").start_app()
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_stops_at_its_target(spec: Path) -> None:
    result = Site(spec, "target_accuracy=0.11", "stop_at_target=true", "algorithm.name=fedavg").serve().result
    assert result is not None and result["stopped_by"] == "target" and result["rounds"] < 6


def test_a_diverged_run_has_a_result_and_the_app_ends(spec: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(spec, "algorithm.name=fedavg", "clients.lr=1000000.0", "clients.local_steps=40")
    site.start_app()
    run = load_run(site.folder)
    assert run.diverged and "diverged in round" in caplog.text


def test_nodes_with_data_of_their_own_need_none_of_the_servers(spec: Path, tmp_path: Path) -> None:
    """The server has digits and evaluates on them; that they have no groups to partition by is no error."""
    draws = np.random.default_rng(0)

    def dataset(m: int) -> str:
        x, y = draws.random((20 + m, 64)).astype(np.float32), draws.integers(0, 4, 20 + m)
        np.savez(tmp_path / f"own{m}.npz", x=x, y=y, test_x=x[:5], test_y=y[:5])
        return f"npz:{tmp_path}/own{m}.npz"

    site = Site(
        spec, "flower.data=own", "clients.per_round=4", "rounds=2", "data.partition.kind=by_group", dataset=dataset
    )
    run = site.serve()
    assert [line["used"] for line in run.metrics] == [4, 4]
    assert "accuracy" in run.metrics[0] and "client_accuracy_mean" not in run.metrics[0]


def test_the_progress_line_names_who_is_missing_and_why() -> None:
    clients = {"client": [0, 2, 3], "node": ["node0", "node2", None], "reason": [None, "no reply", "offline"]}
    metrics = {"used": 1, "sampled": 3, "accuracy": 0.91239, "late": 2}
    record = RoundRecord(7, metrics, clients, {"seconds": 12.345})
    expected = "1 of 3 clients used; missing: node2 (no reply), client 3 (offline); 2 late; accuracy 0.9124; 12.3 s"
    assert progress_line(record, 100) == f"round 7 of 100: {expected}"
    plain = RoundRecord(1, {"used": 3, "sampled": 3, "skipped": "infeasible"}, {"client": [0]}, {"seconds": 1.0})
    assert progress_line(plain, 2) == "round 1 of 2: 3 of 3 clients used; skipped: infeasible; 1.0 s"
