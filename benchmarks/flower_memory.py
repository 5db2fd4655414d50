"""Memory of a Flower server by the number of nodes: dragfl's own server, the drop-in strategies and Flower's FedAvg.

Each server runs two rounds in a fresh process, on a grid that makes a reply at the moment it is pulled: as with a real
SuperLink, an update takes the server's memory from then on. There are no clients and no training. Measured is the peak
of anonymous memory (`RssAnon`), so files that are mapped, such as the updates that DRAG spills to disk in its first
round, do not count. `python -m benchmarks.flower_memory SERVER NODES DIM` prints the peak in bytes.
"""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.inflatable.inflatable_object import no_object_id_recompute
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.floor import ROOT
from benchmarks.memory import EVERY_S, anonymous
from benchmarks.results import Comparison, Row
from benchmarks.timing import Tick, silent

DIM, NODES, ROUNDS = 10_000_000, (10, 50), 2
INPUTS, CLASSES = 784, 10
LIMIT = 1.3  # times the memory of few nodes
OURS = ("dragfl server, fedavg", "dragfl server, drag")
SPEC = """
rounds = {rounds}
data.dataset = "benchmarks.flower_memory:tiny"
data.partition.kind = "iid"
model = {{ name = "mlp", hidden = {hidden} }}
clients = {{ total = {nodes}, per_round = {nodes}, local_steps = 1, batch_size = 1, lr = 0.01 }}
algorithm.name = "{algorithm}"
evaluation.every = 1000
checkpoint.every = 1000
"""


def tiny() -> object:
    from benchmarks.workloads import noise

    return noise((1, 28, 28), CLASSES, 100)


def layers(dim: int) -> dict[str, tuple[int, ...]]:
    """The shapes of an MLP 784-h-10 with about `dim` parameters."""
    hidden = _hidden(dim)
    return {"1.weight": (hidden, INPUTS), "1.bias": (hidden,), "3.weight": (CLASSES, hidden), "3.bias": (CLASSES,)}


def _hidden(dim: int) -> int:
    return max(1, (dim - CLASSES) // (INPUTS + 1 + CLASSES))


class PullGrid(Grid):
    """All nodes are online and reply to everything; a reply is made when it is pulled."""

    def __init__(self, nodes: int) -> None:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self._ids = [2**63 + i for i in range(nodes)]
        self._sent: dict[str, Message] = {}
        self._run = Run.create_empty(1)

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return self._ids

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=id, status="online") for id in self._ids]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            with no_object_id_recompute():
                message.metadata.__dict__["_message_id"] = id = message.object_id
            self._sent[id] = message
            ids.append(id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [reply_to(self._sent.pop(id)) for id in list(message_ids) if id in self._sent]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """As Flower does: all replies are in one list."""
        return self.pull_messages(self.push_messages(messages))


def reply_to(message: Message) -> Message:
    """What a client would answer, to dragfl's own messages and to those of Flower's strategies."""
    content = message.content
    if message.metadata.message_type.endswith("hello"):
        from dragfl.flower.hello import hello_reply

        return hello_reply(message, {})
    metrics = MetricRecord({"num-examples": 1})
    if "order" not in content.config_records:
        arrays = {name: small(tuple(array.shape)) for name, array in content["arrays"].items()}
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)
    order, w = content.config_records["order"], content.array_records["model"]["w"]
    answer = ConfigRecord({"nonce": order["nonce"], "round": int(order["t"]) + 1})  # type: ignore[arg-type]
    update = ArrayRecord({"delta": small(tuple(w.shape))})
    return Message(RecordDict({"update": update, "metrics": metrics, "reply": answer}), reply_to=message)


def small(shape: tuple[int, ...]) -> Array:
    """An array of zeros that shares no memory with any other, as if it came over the network."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    data = bytes(bytearray(file.getvalue()).ljust(len(file.getvalue()) + 4 * int(np.prod(shape)), b"\0"))
    return Array("float32", shape, "numpy.ndarray", data)


def _serve(algorithm: str, grid: PullGrid, nodes: int, dim: int) -> None:
    """Two rounds of dragfl's own server."""
    from dragfl.flower import server_app

    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.toml"
        spec.write_text(SPEC.format(rounds=ROUNDS, hidden=_hidden(dim), nodes=nodes, algorithm=algorithm))
        context = Context(1, 1, {}, RecordDict(), {"run-dir": f"{folder}/run", "overrides": ""})
        server_app(spec)(grid, context)


def _start(strategy: Strategy, grid: PullGrid, dim: int) -> None:
    """Two rounds of a strategy."""
    arrays = ArrayRecord({name: small(shape) for name, shape in layers(dim).items()})
    strategy.start(grid, arrays, num_rounds=ROUNDS)


def _drop_in() -> Strategy:
    from dragfl.flower import DragStrategy

    return DragStrategy(fraction_evaluate=0.0)


SERVERS: Mapping[str, Callable[[PullGrid, int, int], None]] = {
    OURS[0]: lambda grid, nodes, dim: _serve("fedavg", grid, nodes, dim),
    OURS[1]: lambda grid, nodes, dim: _serve("drag", grid, nodes, dim),
    "dragfl DragStrategy": lambda grid, nodes, dim: _start(_drop_in(), grid, dim),
    "Flower FedAvg": lambda grid, nodes, dim: _start(FedAvg(fraction_evaluate=0.0), grid, dim),
}


def measure(tick: Tick = silent, few_many: tuple[int, int] = NODES, dim: int = DIM) -> Comparison:
    """Compare the peak memory with few and with many nodes, of each server."""
    base, rows = f"{few_many[0]} nodes", []
    for name in SERVERS:
        found = {}
        for nodes in few_many:
            tick(f"{name}, {nodes} nodes")
            found[nodes] = _peak(name, nodes, dim)
        for nodes, peak in found.items():
            limits = {base: LIMIT} if name in OURS and nodes != few_many[0] else {}
            ratios = {base: peak / found[few_many[0]]}
            kind = "dragfl" if name.startswith("dragfl") else "peer"
            rows.append(Row(f"{name}, {nodes} nodes", kind, "1 process", peak, peak, peak, ratios, limits))  # type: ignore[arg-type]
    title = f"peak anonymous memory of a server, {dim:,} parameters, {ROUNDS} rounds, replies made when they are pulled"
    return Comparison("flower", title, tuple(rows), (base,), 1, unit="MB")


def _peak(name: str, nodes: int, dim: int) -> float:
    command = [sys.executable, "-m", "benchmarks.flower_memory", name, str(nodes), str(dim)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=True, text=True
    )
    return float(done.stdout.splitlines()[-1]) / 1e6


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    name, nodes, dim = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_S):
            peak.append(max(peak.pop(), anonymous()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        SERVERS[name](PullGrid(nodes), nodes, dim)
    finally:
        over.set()
        watcher.join()
    print(peak[0])


if __name__ == "__main__":
    main()
