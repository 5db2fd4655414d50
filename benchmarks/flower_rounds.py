"""Seconds of a round of a real federation: SuperLink and SuperNodes on this machine, with TLS and authentication.

An empty round of Flower is one message to every node that returns it, with `Grid.send_and_receive`. Its client imports
flwr only, or torch as well, since every message starts a process. A round of dragfl trains one step of a small model.
They take turns on the same nodes.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median

import tomli_w

from benchmarks.results import Comparison, Contender, rows
from benchmarks.timing import Tick, silent
from dragfl.errors import DragflError
from dragfl.flower.app_files import write_app
from dragfl.flower.fleet import Fleet
from dragfl.flower.guard import descendants
from dragfl.runs.directory import load_run

NODES, PASSES = 2, 3
WAIT_S = 600.0
SERVER = """
import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    config, seconds = context.run_config, []
    while len(nodes := list(grid.get_node_ids())) < config["nodes"]:
        time.sleep(0.5)
    for t in range(config["rounds"]):
        started = time.perf_counter()
        content = [RecordDict({"order": ConfigRecord({"t": t})}) for _ in nodes]
        messages = [Message(c, node, "train", group_id=str(t)) for c, node in zip(content, nodes)]
        replies = list(grid.send_and_receive(messages))
        assert len(replies) == len(nodes) and all(reply.has_content() for reply in replies), replies
        seconds.append(time.perf_counter() - started)
    Path(config["out"]).write_text(json.dumps(seconds))
"""
CLIENT = """
{imports}
from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    return Message(message.content, reply_to=message)
"""
SPEC = """
name = "bench"
rounds = {rounds}
clients = {{ total = {nodes}, per_round = {nodes}, local_steps = 1, batch_size = 10, lr = 0.01 }}
data = {{ dataset = "digits", partition = {{ kind = "iid" }} }}
model.name = "mlp"
algorithm.name = "drag"
evaluation.every = 1000000
checkpoint.every = 1000000
"""


APPS = {"empty round": "", "empty round, client imports torch": "import torch", "dragfl, drag": None}


def measure(repeats: int, tick: Tick = silent, nodes: int = NODES, *, secure: bool = True) -> Comparison:
    """Compare the rounds, in turns, so that a slow period of the machine affects all.

    The first round of each app is left out: nodes receive the app, and dragfl greets them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in APPS}
    cpu: dict[str, list[float]] = {name: [] for name in APPS}
    passes, rounds = min(PASSES, repeats), -(-repeats // PASSES) + 1
    with tempfile.TemporaryDirectory() as folder, Fleet(Path(folder) / "fleet", nodes, secure=secure) as fleet:
        fleet.start_nodes()
        for turn in range(passes):
            for i, (name, imports) in enumerate(APPS.items()):
                tick(f"{name}, turn {turn + 1} of {passes}")
                app, before = Path(folder) / f"app-{turn}-{i}", cpu_seconds(fleet.processes.pids.values())
                found = _dragfl(fleet, app, rounds) if imports is None else _empty(fleet, app, imports, rounds)
                seconds[name] += found[1:]
                cpu[name].append((cpu_seconds(fleet.processes.pids.values()) - before) / rounds)
    how = f"{nodes} nodes"
    contenders = [Contender(name, "dragfl" if "dragfl" in name else "peer", how, lambda: None) for name in APPS]
    bases = {"empty round": contenders[0], "with torch": contenders[1]}
    made = rows(contenders, {who.label: seconds[who.name] for who in contenders}, bases)
    security = "TLS and authentication" if secure else "insecure"
    title = f"seconds of a round, real processes on one machine, {how}, {security}"
    beyond = [f"{made[2].median - other.median:.1f} s" for other in made[:2]]
    notes = (
        f"A round of dragfl takes {beyond[0]} more than an empty one, {beyond[1]} more than one that imports torch.",
        "CPU seconds of all processes, a whole run by its rounds: "
        + ", ".join(f"{name} {median(values):.1f}" for name, values in cpu.items())
        + ".",
    )
    return Comparison("flower", title, made, tuple(bases), passes * (rounds - 1), notes, unit="s")


def cpu_seconds(roots: Iterable[int]) -> float:
    """CPU time of these processes, of those below them, and of those that have ended below them."""
    ticks = 0
    for root in list(roots):
        for pid in {root} | descendants(root):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _empty(fleet: Fleet, app: Path, imports: str, rounds: int) -> list[float]:
    package = app / "empty"
    package.mkdir(parents=True)
    modules = {"serverapp": "empty.server_app:app", "clientapp": "empty.client_app:app"}
    config = {"nodes": fleet.nodes, "rounds": rounds, "out": str(app / "seconds.json")}
    tool = {"flwr": {"app": {"publisher": "dragfl", "components": modules, "config": config}}}
    project = {"name": "empty", "version": "1.0.0", "description": "empty rounds", "dependencies": ["flwr"]}
    (app / "pyproject.toml").write_text(tomli_w.dumps({"project": project, "tool": tool}))
    (package / "__init__.py").write_text("")
    (package / "server_app.py").write_text(SERVER)
    (package / "client_app.py").write_text(CLIENT.format(imports=imports))
    _run(fleet, app, {})
    return [float(value) for value in json.loads((app / "seconds.json").read_text())]


def _dragfl(fleet: Fleet, app: Path, rounds: int) -> list[float]:
    write_app(app, SPEC.format(rounds=rounds, nodes=fleet.nodes), "bench")
    _run(fleet, app, {"run-dir": str(app / "run")})
    return [float(line["seconds"]) for line in load_run(app / "run").timing]


def _run(fleet: Fleet, app: Path, config: dict[str, str]) -> None:
    """Submit an app and wait for its end."""
    run, until = fleet.submit(app, config), time.monotonic() + WAIT_S
    while not (status := fleet.status(run)[0]).startswith("finished"):
        fleet.check()
        if time.monotonic() > until:
            raise DragflError(f"{app.name}: not finished within {WAIT_S:g} s")
        time.sleep(1.0)
    if status != "finished:completed":
        raise DragflError(f"{app.name}: {status}\n{fleet.server_log(run)}")
