"""`examples/flower_quickstart`: a Flower app whose client knows nothing of dragfl; two lines of its server differ."""

from __future__ import annotations

import ast
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.serverapp.strategy import FedAvg

from dragfl.flower.fleet import Fleet
from tests.flower.local_grid import LocalGrid
from tests.flower.processes import wait_until

APP = Path(__file__).resolve().parents[2] / "examples" / "flower_quickstart"
CONFIG = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`app("server_app")`: a module of the example."""
    monkeypatch.syspath_prepend(str(APP))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for small layers several threads are slower
    yield lambda name: import_module(f"quickstart.{name}")
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        del sys.modules[name]


def make_grid(app: Any, nodes: int) -> LocalGrid:
    configs = [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)]
    return LocalGrid(app("client_app").app, configs, run_config=CONFIG)


def test_it_runs_and_learns(app: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng():
        config = {**CONFIG, "num-server-rounds": 4}
        app("server_app").app(make_grid(app, 6), Context(1, 1, {}, RecordDict(), config))
    accuracies = [metrics["accuracy"] for metrics in ast.literal_eval(capsys.readouterr().out).values()]
    assert len(accuracies) == 5 and accuracies[-1] > accuracies[0] + 0.2


def test_flowers_own_strategy_runs_with_the_same_client(app: Any) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        initial = ArrayRecord(app("task").Net().state_dict())
        result = FedAvg(fraction_evaluate=0.0).start(make_grid(app, 4), initial, num_rounds=1, timeout=30)
    assert list(result.arrays) == list(initial)


def test_the_client_does_not_import_dragfl() -> None:
    for name in ("client_app", "task"):
        assert "dragfl" not in (APP / "quickstart" / f"{name}.py").read_text()


def test_the_readme_shows_the_two_lines_of_the_server() -> None:
    server, readme = (APP / "quickstart" / "server_app.py").read_text(), (APP / "README.md").read_text()
    added = [line[1:].strip() for line in readme.splitlines() if line.startswith("+")]
    assert len(added) == 2 and all(line in server for line in added)


def test_every_client_has_few_labels_and_every_sample_has_an_owner(app: Any) -> None:
    task = app("task")
    parts = [task.load_data(i, 10)[1] for i in range(10)]
    assert sum(len(y) for y in parts) == 1797 - task.TEST - task.ROOT
    assert max(len(y.unique()) for y in parts) <= 4


@pytest.mark.slow
def test_real_nodes_have_the_accuracies_of_the_grid_in_memory(
    app: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SuperLink and 3 SuperNodes with TLS and authentication, 2 rounds."""
    changes = {"num-server-rounds": 2, "local-epochs": 2, "fraction-train": 1.0}
    folder = tmp_path / "app"
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with Fleet(tmp_path / "fleet", 3) as fleet:
        fleet.start_nodes()
        run = fleet.submit(folder, changes)
        wait_until(lambda: (fleet.check(), fleet.status(run)[0].startswith("finished"))[1])
        log = fleet.server_log(run)
        assert fleet.status(run)[0] == "finished:completed", log
    capsys.readouterr()
    with torch.random.fork_rng():
        grid = LocalGrid(app("client_app").app, [{"partition-id": i} for i in range(3)], run_config=CONFIG | changes)
        app("server_app").app(grid, Context(1, 1, {}, RecordDict(), CONFIG | changes))
    assert capsys.readouterr().out.strip() in log
