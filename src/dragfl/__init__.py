"""Federated learning with non-IID data and Byzantine clients: DRAG, BR-DRAG and their baselines.

`__all__` lists the public names. Each is imported at first use, so `import dragfl` is fast and does not import torch.
`__version__` is the version of the installed package, which pyproject.toml declares.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragfl import attacks, data, functional, models, report, testing, theory
    from dragfl.attack_matrix import arena
    from dragfl.config.spec import Experiment, load
    from dragfl.data import partitions
    from dragfl.data.dataset import Dataset
    from dragfl.executors import resume, run
    from dragfl.report.frame import frame
    from dragfl.runs.directory import Run, load_run
    from dragfl.runs.simulation import simulate
    from dragfl.runs.sweep import Callbacks, sweep
    from dragfl.types import Algorithm, RoundRecord, Updates

    __version__: str

_HOME = {
    "Algorithm": "dragfl.types",
    "Callbacks": "dragfl.runs.sweep",
    "Dataset": "dragfl.data.dataset",
    "Experiment": "dragfl.config.spec",
    "RoundRecord": "dragfl.types",
    "Run": "dragfl.runs.directory",
    "Updates": "dragfl.types",
    "arena": "dragfl.attack_matrix",
    "frame": "dragfl.report.frame",
    "load": "dragfl.config.spec",
    "load_run": "dragfl.runs.directory",
    "resume": "dragfl.executors",
    "run": "dragfl.executors",
    "simulate": "dragfl.runs.simulation",
    "sweep": "dragfl.runs.sweep",
}
_MODULES = {
    "attacks": "dragfl.attacks",
    "data": "dragfl.data",
    "functional": "dragfl.functional",
    "models": "dragfl.models",
    "partitions": "dragfl.data.partitions",
    "report": "dragfl.report",
    "testing": "dragfl.testing",
    "theory": "dragfl.theory",
}
__all__ = [
    "Algorithm",
    "Callbacks",
    "Dataset",
    "Experiment",
    "RoundRecord",
    "Run",
    "Updates",
    "arena",
    "attacks",
    "data",
    "frame",
    "functional",
    "load",
    "load_run",
    "models",
    "partitions",
    "report",
    "resume",
    "run",
    "simulate",
    "sweep",
    "testing",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name == "__version__":
        return import_module("importlib.metadata").version("dragfl")
    raise AttributeError(f"module 'dragfl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
