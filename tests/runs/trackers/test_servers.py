"""MLflow and Weights & Biases without a server: a local store and the offline mode.

They run where the packages are installed. DRAGFL_TRACKERS_PYTHON names the interpreter of another environment that has
them and dragfl, for a machine where they are not installed beside the rest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dragfl
from tests.conftest import TIMEOUT_S

pytestmark = pytest.mark.slow
OTHER = os.environ.get("DRAGFL_TRACKERS_PYTHON")
SPEC = 'rounds = 6\n[model]\nname = "logistic"\n[evaluation]\nevery = 2\n[checkpoint]\nevery = 2\n'

STOPPED_AND_RESUMED = """
import sys, dragfl, dragfl.errors
name, seen = sys.argv[1], []
def stop():
    seen.append(1)
    return len(seen) == 3
try:
    dragfl.run("x.toml", "r", log=name, should_stop=stop)
    sys.exit("not stopped")
except dragfl.errors.Interrupted:
    pass
dragfl.resume("r")
dragfl.run("x.toml", "r", log=name)  # finished: nothing new
"""

READ_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient()
experiment = client.get_experiment_by_name("dragfl")
(run,) = client.search_runs([experiment.experiment_id])
history = {name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
           for name in run.data.metrics}
files = [f.path for folder in (None, "figures") for f in client.list_artifacts(run.info.run_id, folder)]
print(json.dumps({"history": history, "params": run.data.params, "status": run.info.status, "artifacts": files}))
"""

READ_WANDB = """
import glob, json, pathlib
from wandb.proto import wandb_internal_pb2 as pb

def records(data):  # a LevelDB log: blocks of 32 KiB, pieces of 4 bytes checksum, 2 bytes length, 1 byte kind
    at, whole = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, or the last piece
            yield pb.Record.FromString(whole)
            whole = b""

found = []
for folder in sorted(glob.glob("r/wandb/offline-run-*")):
    rows, config = [], {}
    for record in records(next(pathlib.Path(folder).glob("*.wandb")).read_bytes()):
        if record.WhichOneof("record_type") == "history":
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item})
        if record.WhichOneof("record_type") == "run":
            config |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
    found.append({"id": folder.rsplit("-", 1)[1], "rows": rows, "config": config})
print(json.dumps(found))
"""


def interpreter(package: str) -> str:
    if OTHER:
        return OTHER
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'dragfl[{package}]', or set DRAGFL_TRACKERS_PYTHON")
    return sys.executable


def python(package: str, code: str, *arguments: str, cwd: Path) -> str:
    """Run code in the environment of the trackers, away from every server."""
    settings = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{cwd}/store.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "WANDB_MODE": "offline",
        "PYTHONPATH": str(Path(dragfl.__file__).parents[1]),
    }
    done = subprocess.run(
        [interpreter(package), "-c", code, *arguments],
        cwd=cwd,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "continues without it" not in done.stderr
    return done.stdout


def logged_metrics(run: Path, name: str) -> list[tuple[int, float]]:
    return [(row["round"], float(row[name])) for row in dragfl.load_run(run).metrics if name in row]


def test_mlflow_has_every_round_once(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SPEC)
    python("mlflow", STOPPED_AND_RESUMED, "mlflow", cwd=tmp_path)
    found = json.loads(python("mlflow", READ_MLFLOW, cwd=tmp_path).splitlines()[-1])
    history = {name: [(step, value) for step, value in points] for name, points in found["history"].items()}
    for name in ("accuracy", "loss", "bytes_up"):
        assert sorted(history[name]) == logged_metrics(tmp_path / "r", name)
    assert sorted(step for step, _ in history["timing/seconds"]) == [1, 2, 3, 4, 5, 6]
    assert found["params"]["clients.lr"] == "0.1" and found["status"] == "FINISHED"
    assert {"figures/accuracy.png", "figures/label_distribution.png", "spec.toml"} <= set(found["artifacts"])


def test_wandb_offline_has_every_round_once(tmp_path: Path) -> None:
    """The offline run of the resumed process is complete by itself and has the id of the first one."""
    (tmp_path / "x.toml").write_text(SPEC)
    python("wandb", STOPPED_AND_RESUMED, "wandb", cwd=tmp_path)
    first, last = json.loads(python("wandb", READ_WANDB, cwd=tmp_path).splitlines()[-1])
    assert first["id"] == last["id"]
    assert [row["_step"] for row in first["rows"]] == [1, 2, 3]
    assert [row["_step"] for row in last["rows"]] == [1, 2, 3, 4, 5, 6]
    accuracy = [(row["_step"], row["accuracy"]) for row in last["rows"] if "accuracy" in row]
    assert accuracy == logged_metrics(tmp_path / "r", "accuracy")
    assert last["config"]["clients.lr"] == 0.1
    assert {"figures/accuracy/path", "figures/label_distribution/path"} <= set(last["rows"][-1])


def test_a_server_that_is_down_does_not_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(SPEC)
    code = """
import os
os.environ |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
import logging; logging.basicConfig(filename="log.txt")
import dragfl
assert dragfl.run("x.toml", "r", log="mlflow").finished
"""
    python("mlflow", code, cwd=tmp_path)
    assert (tmp_path / "log.txt").read_text().count("the run continues without it") == 1
