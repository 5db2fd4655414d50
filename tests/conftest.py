"""A toy federation that trains in milliseconds, and the real commands on the embedded digits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

import dragfl
from dragfl.data.dataset import from_tensors
from dragfl.engine.backends import ray as ray_backend

Load = Callable[..., dragfl.Experiment]
LEFT_OUT = pytest.StashKey[int]()
TIMEOUT_S = 3600  # of a wait; it only guards against tests that hang, and a machine may be very busy


@pytest.fixture(scope="session")
def toy() -> dragfl.Dataset:
    """144 + 60 points of three classes in six dimensions, which a linear model separates well but not perfectly."""
    draws = torch.Generator().manual_seed(7)
    centres = torch.randn(3, 6, generator=draws)
    y = torch.arange(204) % 3
    x = centres[y] + 0.7 * torch.randn(204, 6, generator=draws)
    return from_tensors(x[:144], y[:144], x[144:], y[144:], name="toy")


@pytest.fixture
def experiment(toy: dragfl.Dataset) -> Load:
    """`experiment(algorithm={...}, ...)`: 6 clients, logistic regression on the toy data; tables are merged."""

    def make(*overrides: str, **changes: Any) -> dragfl.Experiment:
        base: dict[str, Any] = {
            "seed": 3,
            "rounds": 3,
            "data": {"dataset": toy, "partition": {"kind": "sorted_shards"}},
            "clients": {"total": 6, "local_steps": 2, "batch_size": 5, "lr": 0.2},
            "model": {"name": "logistic"},
            "evaluation": {"every": 1},
        }
        return dragfl.load(merged(base, changes), *overrides)

    return make


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """One level deep; a value of None removes its key."""
    tables = {k: dict(v) if isinstance(v, Mapping) else v for k, v in base.items()}
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(tables.get(key), Mapping):
            value = {k: v for k, v in {**tables[key], **value}.items() if v is not None}
        tables[key] = value
    return {k: v for k, v in tables.items() if v is not None}


def command(*arguments: str | Path) -> list[str]:
    """`dragfl ARGUMENTS` as a process of its own."""
    return [sys.executable, "-m", "dragfl", *map(str, arguments)]


def shell(*arguments: str | Path, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a dragfl command and wait for it."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=os.environ | {"COLUMNS": "160"},
        **options,
    )


def python(code: str, cwd: Path) -> str:
    """Run code in a fresh interpreter and return its output."""
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


DIGITS = """
name = "small"
seed = 5
rounds = 12
[data]
dataset = "digits"
partition = { kind = "sorted_shards" }
[clients]
total = 8
per_round = 4
local_steps = 2
batch_size = 10
[algorithm]
name = "drag"
[attack]
name = "random_scaling"
attackers = 2
[model]
name = "logistic"
[evaluation]
every = 3
[checkpoint]
every = 4
"""


@pytest.fixture
def digits_toml(tmp_path: Path) -> Path:
    """A small experiment on disk: DRAG under attack, half of the clients sampled, checkpoints on the way."""
    path = tmp_path / "small.toml"
    path.write_text(DIGITS)
    return path


@pytest.fixture
def empty_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn, but their files are empty, which saves most of the time."""
    from dragfl.report.figures.files import KINDS, Drawing

    def save(drawing: Drawing, folder: Path, kinds: Sequence[str] = KINDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            (folder / f"{drawing.name}.{kind}").write_bytes(b"")

    monkeypatch.setattr(Drawing, "save", save)


KEPT = ("metrics.jsonl", "clients.jsonl", "model.safetensors")


def kept_bytes(folder: Path) -> dict[str, bytes]:
    """The files of a run that depend only on spec, seed, machine and versions."""
    return {name: (folder / name).read_bytes() for name in KEPT}


# Read when Ray is imported, by whichever test is first, and by the processes of a cluster. A busy machine may need more
# than a minute to start a worker, or ten seconds to answer a health check. A dead node is found all the same.
PATIENCE = {
    "RAY_worker_register_timeout_seconds": str(TIMEOUT_S),
    "RAY_health_check_timeout_ms": str(1000 * TIMEOUT_S),
}
os.environ.update(ray_backend._QUIET | PATIENCE)

# A shell starts background jobs, and nohup every command, with these signals ignored, and children inherit that: a test
# that interrupts a process would wait for ever.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

os.environ["COLUMNS"] = "80"  # whatever the terminal has; tests of wider tables set their own
os.environ.pop("FORCE_COLOR", None)

# With pytest-xdist there is a process for each core: more threads of torch would wait for each other. dragfl trains
# with one thread in any case.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# The same examples in every run; `make test-all` searches for new ones.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


# What is not run is said at the end, with what it would take; `-ra` lists skipped tests with their reasons.


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = 0


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """In a process of pytest-xdist, too."""
    if items:
        items[0].config.stash[LEFT_OUT] += len(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The processes of pytest-xdist collect the same tests."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[LEFT_OUT]:
        terminalreporter.write_line(f"{config.stash[LEFT_OUT]} tests are left out; `make test-all` runs the slow ones")
